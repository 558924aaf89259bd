//! libFuzzer target: mounts damaged images. The input is a list of patches to the metadata of a small volume
//! with some files, and the checksums are made right again, so that the decoder behind them is reached.
//! Whatever the input, mounting, checking, reading and writing either work or throw Error.
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "io/device/synchronous_queue.hpp"
#include "volume/format/record.hpp"
#include "volume/journal/metadata_trees.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace rawduck;

namespace {

constexpr uint64_t CAPACITY = MIN_VOLUME_BYTES;
constexpr uint32_t LBA = 512;
//! Patches reach the superblock, the first records of either area of the log, and all metadata pages, first those that
//! the superblock names: everything that is decoded. Each gets so many bytes, one after the other.
constexpr uint64_t SUPERBLOCK_BYTES = 4 * KIB, RECORDS_BYTES = 4 * KIB;

//! A base image that is shared by all runs, and what one run changed.
class OverlayDevice final : public Device {
  public:
    OverlayDevice(const std::string &base, std::map<uint64_t, std::string> &pages)
        : base_(base), pages_(pages) {
        caps_.engine = "overlay";
        caps_.capacity_bytes = base.size();
        caps_.lba_size = LBA;
        caps_.max_queue_depth = 4;
    }
    const Capabilities &Caps() const override { return caps_; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return std::make_unique<SynchronousQueue>(
            depth, [this](const Command &command) { return Transfer(command); });
    }
    void Flush() override {}
    bool Deallocate(uint64_t, uint64_t) override { return false; }

  private:
    int64_t Transfer(const Command &command) {
        char *data = static_cast<char *>(command.data);
        for (uint64_t at = 0; at < command.length; at += LBA) {
            const uint64_t offset = command.device_offset + at;
            auto page = pages_.find(offset);
            if (command.opcode == Opcode::WRITE) {
                pages_[offset].assign(data + at, LBA);
            } else if (page != pages_.end()) {
                memcpy(data + at, page->second.data(), LBA);
            } else {
                memcpy(data + at, base_.data() + offset, LBA);
            }
        }
        return command.length;
    }

    const std::string &base_;
    std::map<uint64_t, std::string> &pages_;
    Capabilities caps_;
};

Target FuzzTarget() {
    Target target;
    target.kind = TargetKind::MEMORY;
    target.name = "memory:fuzz";
    target.path = "fuzz";
    target.identity = "memory:fuzz";
    return target;
}

std::shared_ptr<Volume> MountOverlay(const std::string &base, std::map<uint64_t, std::string> &pages) {
    return Volume::MountDevice(FuzzTarget(), std::make_unique<OverlayDevice>(base, pages), MountOptions(),
                               std::make_shared<IoStats>());
}

//! In many pieces, with many holes: both lists lie in trees. A snapshot and a file of its own share them.
void PopulateShared(Volume &volume) {
    OpenMode mode;
    mode.write = mode.create = true;
    const std::string bytes(40 * ALLOCATION_UNIT_BYTES, 's');
    {
        auto file = volume.Open("long.duckdb", mode);
        file->Write(bytes.data(), bytes.size(), 0);
        file->Sync();
        for (uint64_t unit = 4; unit < 40; unit += 3) {
            file->Write(bytes.data(), ALLOCATION_UNIT_BYTES, unit * ALLOCATION_UNIT_BYTES);
            file->Write(bytes.data(), 700, (40 + 2 * unit) * ALLOCATION_UNIT_BYTES);
        }
    }
    if (volume.FileExists("long.duckdb@s")) {
        volume.DropSnapshot("long.duckdb@s");
    }
    volume.Snapshot("long.duckdb", "s");
    if (volume.FileExists("copy.duckdb")) {
        volume.Remove("copy.duckdb");
    }
    volume.Clone("long.duckdb@s", "copy.duckdb");
    auto copy = volume.Open("copy.duckdb", mode);
    copy->Write(bytes.data(), 2 * ALLOCATION_UNIT_BYTES, 9 * ALLOCATION_UNIT_BYTES);
    copy->Sync();
    copy->Truncate(20 * ALLOCATION_UNIT_BYTES + 5);
}

void Populate(Volume &volume) {
    OpenMode mode;
    mode.write = mode.create = true;
    const std::string bytes(20000, 'p');
    for (const char *name : {"a.duckdb", "a.duckdb.wal", "d/b.parquet"}) {
        auto file = volume.Open(name, mode);
        file->Append(bytes.data(), bytes.size() - 100);
        file->Sync();
        file->Write(bytes.data(), 4096, 4096);
        file->Write(bytes.data(), 5, 60000);
    }
    volume.Open("d/b.parquet", mode)->Truncate(777);
    volume.Move("d/b.parquet", "d/c.parquet");
    PopulateShared(volume);
}

// Mounts that write, so that there is a checkpoint with files as well as a log in both areas.
std::string MakeBase() {
    std::string base(CAPACITY, '\0');
    std::map<uint64_t, std::string> pages;
    {
        BlockIo io(std::make_unique<OverlayDevice>(base, pages), BlockIoOptions(), "memory:fuzz",
                   std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), LBA);
    }
    for (int life = 0; life < 3; life++) {
        Populate(*MountOverlay(base, pages));
    }
    for (const auto &[offset, page] : pages) {
        base.replace(offset, LBA, page);
    }
    return base;
}

//! A piece of the volume that patches reach.
struct Piece {
    uint64_t offset;
    std::string content;
};

//! What patches reach of the untouched volume.
struct Pieces {
    TreeSuperblock superblock;
    //! The superblock, the log's areas, the pages of the map, the roots, the pages of files.
    std::vector<Piece> all;
    size_t map_pages = 0;
    uint64_t bytes = 0;

    explicit Pieces(const std::string &base) {
        memcpy(static_cast<void *>(&superblock), base.data(), sizeof(superblock));
        const auto add = [&](uint64_t offset, uint64_t length) {
            all.push_back({offset, base.substr(offset, length)});
            bytes += length;
        };
        add(0, SUPERBLOCK_BYTES);
        add(LogStart(superblock, 0), RECORDS_BYTES);
        add(LogStart(superblock, 1), RECORDS_BYTES);
        for (const uint64_t unit : MapUnits(superblock)) {
            add(unit * ALLOCATION_UNIT_BYTES, TREE_PAGE_BYTES);
            map_pages++;
        }
        const CatalogRoots &roots = superblock.roots;
        std::set<uint64_t> units;
        for (const TreeRoot &root : {roots.names, roots.files, roots.tails, roots.space_maps,
                                     roots.space_summaries, roots.references}) {
            if (root.levels > 0) {
                add(root.page.unit * ALLOCATION_UNIT_BYTES, TREE_PAGE_BYTES);
                units.insert(root.page.unit);
            }
        }
        std::map<uint64_t, std::string> untouched;
        BlockIo io(std::make_unique<OverlayDevice>(base, untouched), BlockIoOptions(), "memory:fuzz",
                   std::make_shared<IoStats>());
        const MetadataTrees trees(io, superblock, NumberInMount(superblock.mounts + 1, 1), MIB);
        trees.catalog.FindProblems([&](const PagePointer &page) {
            if (units.insert(page.unit).second) {
                add(page.unit * ALLOCATION_UNIT_BYTES, TREE_PAGE_BYTES);
            }
        });
    }
};

char &ByteOf(std::vector<Piece> &pieces, uint64_t number) {
    size_t piece = 0;
    while (number >= pieces[piece].content.size()) {
        number -= pieces[piece++].content.size();
    }
    return pieces[piece].content[number];
}

void ResealRecords(std::string &log, const Uuid &uuid) {
    RecordHeader header;
    for (uint64_t at = 0; at + sizeof(header) <= log.size();) {
        memcpy(static_cast<void *>(&header), log.data() + at, sizeof(header));
        if (memcmp(header.magic, "RDLG", 4) != 0 || header.payload_bytes > log.size() - at - sizeof(header)) {
            return;
        }
        const std::string record = SealRecord(uuid, header.epoch, header.sequence, header.time_us,
                                              log.substr(at + sizeof(header), header.payload_bytes),
                                              header.item_count, LBA, header.before);
        log.replace(at, record.size(), record, 0, log.size() - at);
        at += record.size();
    }
}

void ResealPage(std::string &page, const Uuid &uuid) {
    TreePageHeader header;
    memcpy(static_cast<void *>(&header), page.data(), sizeof(header));
    alignas(ALLOCATION_UNIT_BYTES) char bytes[TREE_PAGE_BYTES];
    memcpy(bytes, page.data(), sizeof(bytes));
    TreePage(bytes).Seal(uuid, {header.unit, header.generation});
    page.assign(bytes, sizeof(bytes));
}

//! Makes the checksums right of what patches reach.
void Reseal(std::vector<Piece> &pieces, const Pieces &untouched) {
    ResealRecords(pieces[1].content, untouched.superblock.uuid);
    ResealRecords(pieces[2].content, untouched.superblock.uuid);
    const size_t first_page = 3 + untouched.map_pages;
    std::string map;
    for (size_t piece = 3; piece < first_page; piece++) {
        map += pieces[piece].content;
    }
    for (size_t piece = first_page; piece < pieces.size(); piece++) {
        ResealPage(pieces[piece].content, untouched.superblock.uuid);
    }
    TreeSuperblock sb;
    memcpy(static_cast<void *>(&sb), pieces[0].content.data(), sizeof(sb));
    if (sb.map_bytes <= map.size()) {
        sb.map_crc = Crc32c(0, map.data(), sb.map_bytes);
    }
    SealSuperblock(sb);
    memcpy(&pieces[0].content[0], &sb, sizeof(sb));
}

void Use(Volume &volume) {
    std::string buffer(64 * KIB, '\0');
    for (const FileInfo &info : volume.Files()) {
        if (info.kind != FileKind::DIRECTORY) {
            auto file = volume.Open(info.name, OpenMode());
            file->Read(&buffer[0], buffer.size(), 0);
            file->Read(&buffer[0], buffer.size(), info.size / 2);
        }
    }
    Populate(volume);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const std::string base = MakeBase();
    static const Pieces untouched(base);
    if (size < 1) {
        return 0;
    }
    std::vector<Piece> pieces = untouched.all;
    for (size_t at = 1; at + 5 <= size; at += 5) {
        // Three bytes say where, one how (set, add or xor), one what.
        const uint64_t number = data[at] | data[at + 1] << 8 | data[at + 2] << 16;
        const char value = static_cast<char>(data[at + 4]);
        char &byte = ByteOf(pieces, number % untouched.bytes);
        byte = data[at + 3] % 3 == 0 ? value
                                     : static_cast<char>(data[at + 3] % 3 == 1 ? byte + value : byte ^ value);
    }
    if ((data[0] & 1) != 0) {
        Reseal(pieces, untouched);
    }
    std::map<uint64_t, std::string> pages;
    for (const Piece &piece : pieces) {
        for (uint64_t at = 0; at < piece.content.size(); at += LBA) {
            pages[piece.offset + at] = piece.content.substr(at, LBA);
        }
    }
    try {
        Use(*MountOverlay(base, pages));
    } catch (const Error &) {
        // What a damaged image must do.
    }
    return 0;
}
