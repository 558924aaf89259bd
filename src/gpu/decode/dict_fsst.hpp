#pragma once
//! DICT_FSST: strings. DuckDB: src/storage/compression/dict_fsst, third_party/fsst.
//!
//!     0    u32 bytes of the dictionary, u32 its entries, u8 mode, u8 width of lengths, u8 width of codes, u8 unused,
//!          u32 bytes of the symbol table
//!     16   the entries one after the other; entry 0 stands for NULL and has no bytes
//!     …    symbol table, lengths of the entries, a code for each row: the number of its entry. Each starts at a multiple of 8
//!
//! Mode 0: entries are strings. 1: they are compressed with FSST. 2: the same, and there are no codes; row i has entry i + 1.
//!
//! FSST: each byte stands for a symbol of up to 8 bytes, 255 for the byte behind it. The table: u32 unused, u32 version, u8 flags,
//! how many symbols have a length of 1, 2, … 8 (u8 each), then the symbols, those of length 2 first and those of length 1
//! last.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

struct DictFsst {
    static constexpr u32 GROUP_ROWS = 2048;
    static constexpr u32 ENTRIES_PER_START = 8;
    static constexpr u32 SYMBOLS = 256;
    static constexpr u32 ESCAPE = 255;
    static constexpr u64 DICTIONARY = 16;
    static constexpr u64 SYMBOL_BYTES = 17; // where they start in the table
    static constexpr u32 FSST_VERSION = 20190218;
    struct Shared {
        u64 sums[BLOCK];
        u64 symbols[SYMBOLS];
        u8 lengths[SYMBOLS];
    };

    enum Mode : u32 { DICTIONARY_ONLY = 0, DICTIONARY_AND_FSST = 1, FSST_ONLY = 2 };

    struct Layout {
        u64 dictionary_bytes;
        u32 entries;
        u32 mode;
        u32 length_width;
        u32 code_width;
        u64 symbol_table;
        u64 symbol_table_bytes;
        u64 lengths;
        u64 codes;
    };

    //! In scratch, found in phase PREPARE.
    struct Prepared {
        u64 is_whole;         //!< 0 where the segment is malformed
        u64 symbols[SYMBOLS]; //!< their bytes, the first one lowest
        u8 lengths[SYMBOLS];  //!< 0 where there is no such symbol
    };

    //! In scratch, too: where every ENTRIES_PER_STARTth entry starts.
    static GPU_FUNCTION u32 *Starts(const SegmentTask &task) {
        return reinterpret_cast<u32 *>(task.scratch + sizeof(Prepared));
    }

    static GPU_FUNCTION u64 StartCount(u64 entries) {
        return (entries + ENTRIES_PER_START - 1) / ENTRIES_PER_START;
    }

    //! An entry is there because a row needs it.
    static GPU_FUNCTION u64 MostEntries(const SegmentTask &task) { return task.segment_rows + 1ull; }

    static GPU_FUNCTION u64 ScratchBytes(const SegmentTask &task) {
        return sizeof(Prepared) + AlignedTo8(4 * StartCount(MostEntries(task)));
    }

    static GPU_FUNCTION bool ReadLayout(const SegmentTask &task, Layout &layout) {
        const Bytes bytes(task);
        layout.dictionary_bytes = bytes.Load<u32>(0);
        layout.entries = bytes.Load<u32>(4);
        layout.mode = bytes.Byte(8);
        layout.length_width = bytes.Byte(9);
        layout.code_width = bytes.Byte(10);
        layout.symbol_table_bytes = bytes.Load<u32>(12);
        layout.symbol_table = AlignedTo8(DICTIONARY + layout.dictionary_bytes);
        layout.lengths = AlignedTo8(layout.symbol_table + layout.symbol_table_bytes);
        layout.codes = AlignedTo8(layout.lengths + PackedBytes(layout.entries, layout.length_width));
        return layout.mode <= FSST_ONLY && layout.length_width <= 32 && layout.code_width <= 32 &&
               layout.entries >= 1 && layout.entries <= MostEntries(task) &&
               (layout.mode != FSST_ONLY || layout.entries == MostEntries(task)) &&
               bytes.Has(layout.codes, PackedBytes(task.segment_rows, layout.code_width));
    }

    static GPU_FUNCTION void Prepare(const SegmentTask &task, u32, Shared &shared) {
        const Bytes bytes(task);
        Prepared &prepared = *reinterpret_cast<Prepared *>(task.scratch);
        Layout layout = {};
        const bool is_read = ReadLayout(task, layout);
        bool is_whole = is_read && (layout.mode == DICTIONARY_ONLY || ReadSymbols(bytes, layout, prepared));
        is_whole = is_whole && ReadStarts(bytes, layout, Starts(task), shared);
        GPU_LANES(lane) {
            if (lane == 0) {
                prepared.is_whole = is_whole;
                if (!is_whole) {
                    Fail(task, MALFORMED);
                }
            }
        }
    }

    static GPU_FUNCTION u32 SymbolCount(u64 counts, u32 length) {
        return counts >> (8 * (length - 1)) & 0xff;
    }

    //! Each lane finds the symbol of one code. False where the table is malformed.
    static GPU_FUNCTION bool ReadSymbols(const Bytes &bytes, const Layout &layout, Prepared &prepared) {
        const u64 table = layout.symbol_table;
        // Strings that end with a byte of 0 are another format; DuckDB does not write them.
        if (layout.symbol_table_bytes < SYMBOL_BYTES || bytes.Load<u32>(table + 4) != FSST_VERSION ||
            (bytes.Byte(table + 8) & 1)) {
            return false;
        }
        const u64 counts = bytes.Word(table + 9); // a byte for each length, the lowest one for 1
        u32 codes = 0, end = SYMBOL_BYTES;
        for (u32 length = 1; length <= 8; length++) {
            codes += SymbolCount(counts, length);
            end += SymbolCount(counts, length) * length;
        }
        if (codes > ESCAPE || end > layout.symbol_table_bytes) {
            return false;
        }
        GPU_EACH(code, SYMBOLS) {
            u64 offset = table + SYMBOL_BYTES;
            u32 before = 0, found = 0;
            for (u32 i = 1; i <= 8 && found == 0; i++) {
                const u32 length = i == 8 ? 1 : i + 1;
                const u32 count = SymbolCount(counts, length);
                found = code < before + count ? length : 0;
                offset += (found ? code - before : count) * length;
                before += count;
            }
            prepared.lengths[code] = static_cast<u8>(found);
            prepared.symbols[code] = bytes.Bits(offset, 0, 8 * found);
        }
        return true;
    }

    //! False where the entries do not fit into the dictionary. All lanes learn it.
    static GPU_FUNCTION bool ReadStarts(const Bytes &bytes, const Layout &layout, u32 *starts,
                                        Shared &shared) {
        const u64 count = StartCount(layout.entries);
        u64 total = 0;
        for (u64 first = 0; first < count; first += BLOCK) {
            GPU_LANES(lane) {
                u64 sum = 0;
                for (u32 i = 0; i < ENTRIES_PER_START; i++) {
                    sum += EntryLength(bytes, layout, (first + lane) * ENTRIES_PER_START + i);
                }
                shared.sums[lane] = sum;
            }
            SumUp(shared.sums);
            GPU_LANES(lane) {
                if (first + lane < count) {
                    const u64 start = total + (lane == 0 ? 0 : shared.sums[lane - 1]);
                    starts[first + lane] = static_cast<u32>(start);
                }
            }
            total += shared.sums[BLOCK - 1];
            GPU_SYNC();
        }
        return total <= layout.dictionary_bytes;
    }

    static GPU_FUNCTION u32 EntryLength(const Bytes &bytes, const Layout &layout, u64 entry) {
        return entry < layout.entries ? bytes.Packed<u32>(layout.lengths, entry, layout.length_width) : 0;
    }

    //! The entry of a row; 0 for NULL and where the code is malformed.
    static GPU_FUNCTION u32 EntryOf(const SegmentTask &task, const Bytes &bytes, const Layout &layout,
                                    u32 row) {
        if (layout.mode == FSST_ONLY) {
            return row + 1;
        }
        const u32 entry = bytes.Packed<u32>(layout.codes, row, layout.code_width);
        if (entry >= layout.entries) {
            Fail(task, MALFORMED);
            return 0;
        }
        return entry;
    }

    static GPU_FUNCTION u64 EntryStart(const Bytes &bytes, const Layout &layout, const u32 *starts,
                                       u32 entry) {
        u64 start = DICTIONARY + starts[entry / ENTRIES_PER_START];
        for (u32 before = entry / ENTRIES_PER_START * ENTRIES_PER_START; before < entry; before++) {
            start += EntryLength(bytes, layout, before);
        }
        return start;
    }

    static GPU_FUNCTION void LoadSymbols(const Prepared &prepared, Shared &shared) {
        GPU_EACH(code, SYMBOLS) {
            shared.symbols[code] = prepared.symbols[code];
            shared.lengths[code] = prepared.lengths[code];
        }
        GPU_SYNC();
    }

    //! Bytes of a compressed string when it is decompressed; sets the error where a code is malformed.
    static GPU_FUNCTION u32 DecompressedLength(const SegmentTask &task, const Bytes &bytes, u64 start,
                                               u32 length, const Shared &shared) {
        u64 sum = 0;
        bool is_whole = true;
        for (u32 i = 0; i < length; i++) {
            const u32 code = bytes.Byte(start + i);
            if (code == ESCAPE) {
                i++;
                is_whole = is_whole && i < length;
                sum++;
            } else {
                is_whole = is_whole && shared.lengths[code] != 0;
                sum += shared.lengths[code];
            }
        }
        if (!is_whole || sum >> 32) {
            Fail(task, MALFORMED);
            return 0;
        }
        return static_cast<u32>(sum);
    }

    //! Writes wanted string `index`, no more of it than it has room for.
    static GPU_FUNCTION void Decompress(const SegmentTask &task, u32 index, const Bytes &bytes, u64 start,
                                        u32 length, const Shared &shared) {
        const u64 room = task.offsets[index + 1] - task.offsets[index];
        u8 *target = task.chars + task.offsets[index];
        u64 written = 0;
        for (u32 i = 0; i < length && written < room; i++) {
            const u32 code = bytes.Byte(start + i);
            if (code == ESCAPE) {
                target[written++] = bytes.Byte(start + ++i);
                continue;
            }
            u64 symbol = shared.symbols[code];
            for (u32 k = 0; k < shared.lengths[code] && written < room; k++, symbol >>= 8) {
                target[written++] = static_cast<u8>(symbol);
            }
        }
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &shared) {
        const Bytes bytes(task);
        const Prepared &prepared = *reinterpret_cast<const Prepared *>(task.scratch);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        Layout layout = {};
        const bool is_whole = prepared.is_whole && ReadLayout(task, layout);
        if (is_whole && layout.mode != DICTIONARY_ONLY) {
            LoadSymbols(prepared, shared);
        }
        GPU_EACH(i, rows.end - rows.begin) {
            const u32 row = rows.begin + i, index = row - task.first_row;
            const u32 entry = is_whole ? EntryOf(task, bytes, layout, row) : 0;
            u32 length = entry == 0 ? 0 : EntryLength(bytes, layout, entry);
            if (length != 0 && layout.mode != DICTIONARY_ONLY) {
                const u64 start = EntryStart(bytes, layout, Starts(task), entry);
                length = DecompressedLength(task, bytes, start, length, shared);
            }
            task.lengths[index] = length;
            if (task.valid) {
                task.valid[index] = entry != 0;
            }
        }
    }

    static GPU_FUNCTION void Characters(const SegmentTask &task, u32 group, Shared &shared) {
        const Bytes bytes(task);
        const Prepared &prepared = *reinterpret_cast<const Prepared *>(task.scratch);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        Layout layout = {};
        if (!prepared.is_whole || !ReadLayout(task, layout)) {
            return; // said in phase PREPARE
        }
        if (layout.mode != DICTIONARY_ONLY) {
            LoadSymbols(prepared, shared);
        }
        GPU_EACH(i, rows.end - rows.begin) {
            const u32 row = rows.begin + i, index = row - task.first_row;
            const u32 entry = EntryOf(task, bytes, layout, row);
            if (entry == 0) {
                continue;
            }
            const u64 start = EntryStart(bytes, layout, Starts(task), entry);
            const u32 length = EntryLength(bytes, layout, entry);
            if (layout.mode == DICTIONARY_ONLY) {
                CopyString(task, index, bytes, start, length);
            } else {
                Decompress(task, index, bytes, start, length, shared);
            }
            CheckText(task, index);
        }
    }
};

} // namespace rawduck::gpu
