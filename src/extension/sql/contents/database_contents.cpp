#include "extension/sql/contents/database_contents.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "common/units.hpp"

#include "duckdb/common/checksum.hpp"
#include "duckdb/storage/storage_info.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace rawduck {

using duckdb::Storage;

namespace {

constexpr uint64_t FILE_HEADER_BYTES = Storage::FILE_HEADER_SIZE, BLOCKS_START = 3 * FILE_HEADER_BYTES;
constexpr uint64_t CHECKSUM_BYTES = sizeof(uint64_t);
constexpr uint64_t FLAGS_OFFSET =
    duckdb::MainHeader::MAGIC_BYTE_OFFSET + duckdb::MainHeader::MAGIC_BYTE_SIZE + sizeof(uint64_t);
//! Read at once, with commands of all of it in flight.
constexpr uint64_t READ_AT_ONCE_BYTES = 8 * MIB;
constexpr uint64_t NOWHERE = UINT64_MAX;
//! DuckDB: MetadataManager. A block of metadata is so many parts, each of which begins with where the next one is: the number of
//! the part above that of the block.
constexpr uint64_t METADATA_PARTS = 64;
constexpr int PART_SHIFT = 56;

uint64_t NumberAt(const char *data) {
    uint64_t number = 0;
    memcpy(&number, data, sizeof number);
    return number;
}

bool ChecksumHolds(const char *block, uint64_t bytes) {
    const auto *data = reinterpret_cast<const uint8_t *>(block);
    return NumberAt(block) == duckdb::Checksum(data + CHECKSUM_BYTES, bytes - CHECKSUM_BYTES);
}

bool IsZeros(const char *data, uint64_t bytes) {
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

//! DuckDB: DatabaseHeader.
struct DatabaseHeader {
    uint64_t iteration, free_list, block_count, block_bytes;
};

class DatabaseCheck {
  public:
    DatabaseCheck(StorageFile &file, const std::string &name, const Interrupted &interrupted)
        : file_(file), name_(name), interrupted_(interrupted), buffer_(READ_AT_ONCE_BYTES) {}

    Contents Run() {
        if (const std::optional<DatabaseHeader> header = NewestHeader()) {
            header_ = *header;
            found_.block_bytes = header_.block_bytes;
            if (CheckSizes() && ReadFreeList()) {
                CheckEnd();
                CheckBlocks();
            }
        }
        return std::move(found_);
    }

  private:
    //! False, and a problem, where it cannot be read.
    bool Read(uint64_t offset, uint64_t length, char *data, const std::string &what) {
        try {
            if (file_.Read(data, length, offset) == length) {
                return true;
            }
            found_.AddProblem(what + " at byte offset " + std::to_string(offset) +
                              ": the file ends before it");
        } catch (const Error &error) {
            if (error.Code() == ErrorCode::INTERRUPTED) {
                throw;
            }
            found_.AddProblem(what + " at byte offset " + std::to_string(offset) + ": " + error.what());
        }
        return false;
    }

    std::optional<DatabaseHeader> NewestHeader() {
        AlignedBuffer pages(BLOCKS_START);
        if (!Read(0, BLOCKS_START, pages.Data(), "headers")) {
            return std::nullopt;
        }
        if (memcmp(pages.Data() + duckdb::MainHeader::MAGIC_BYTE_OFFSET, duckdb::MainHeader::MAGIC_BYTES,
                   duckdb::MainHeader::MAGIC_BYTE_SIZE) != 0 ||
            !ChecksumHolds(pages.Data(), FILE_HEADER_BYTES)) {
            found_.AddProblem("main header: its checksum is wrong");
            return std::nullopt;
        }
        if ((NumberAt(pages.Data() + FLAGS_OFFSET) & duckdb::MainHeader::ENCRYPTED_DATABASE_FLAG) != 0) {
            found_.note =
                "it is encrypted, and its checksums, too: only DuckDB can check it, when it is attached";
            return std::nullopt;
        }
        std::optional<DatabaseHeader> newest;
        for (int i = 1; i <= 2; i++) {
            const char *page = pages.Data() + i * FILE_HEADER_BYTES, *fields = page + CHECKSUM_BYTES;
            if (!ChecksumHolds(page, FILE_HEADER_BYTES)) {
                found_.AddProblem("database header " + std::to_string(i) + ": its checksum is wrong");
                continue;
            }
            const uint64_t block_bytes = NumberAt(fields + 32);
            const DatabaseHeader header = {NumberAt(fields), NumberAt(fields + 16), NumberAt(fields + 24),
                                           block_bytes == 0 ? DEFAULT_BLOCK_ALLOC_SIZE : block_bytes};
            newest = newest && newest->iteration > header.iteration ? newest : header;
        }
        return newest;
    }

    bool CheckSizes() {
        const uint64_t bytes = header_.block_bytes;
        if (bytes < Storage::MIN_BLOCK_ALLOC_SIZE || bytes > Storage::MAX_BLOCK_ALLOC_SIZE ||
            (bytes & (bytes - 1)) != 0) {
            found_.AddProblem("database header: no block has " + std::to_string(bytes) + " bytes");
            return false;
        }
        there_ = (std::max(file_.Size(), BLOCKS_START) - BLOCKS_START) / bytes;
        return true;
    }

    uint64_t OffsetOf(uint64_t block) const { return BLOCKS_START + block * header_.block_bytes; }

    //! Appends what the list of parts at `pointer` holds until it has `wanted` bytes. False, and a problem, where it does not.
    bool ReadParts(uint64_t &pointer, std::string &bytes, uint64_t wanted) {
        const uint64_t part_bytes =
            AlignDown((header_.block_bytes - CHECKSUM_BYTES) / METADATA_PARTS, sizeof(uint64_t));
        while (bytes.size() < wanted) {
            const uint64_t block = pointer & ((1ULL << PART_SHIFT) - 1), part = pointer >> PART_SHIFT;
            const uint64_t blocks = std::min(header_.block_count, there_);
            // A list that comes back to a part has no end.
            if (pointer == NOWHERE || block >= blocks || part >= METADATA_PARTS ||
                parts_read_++ == blocks * METADATA_PARTS) {
                found_.AddProblem("free list: it leads to no block");
                return false;
            }
            if (!Read(OffsetOf(block), header_.block_bytes, buffer_.Data(),
                      "free list: block " + std::to_string(block))) {
                return false;
            }
            if (!ChecksumHolds(buffer_.Data(), header_.block_bytes)) {
                found_.AddProblem("free list: the checksum of block " + std::to_string(block) + " is wrong");
                return false;
            }
            const char *data = buffer_.Data() + CHECKSUM_BYTES + part * part_bytes;
            pointer = NumberAt(data);
            bytes.append(data + sizeof(uint64_t), part_bytes - sizeof(uint64_t));
        }
        return true;
    }

    bool ReadFreeList() {
        uint64_t pointer = header_.free_list;
        std::string bytes;
        if (pointer == NOWHERE) {
            return true;
        }
        if (!ReadParts(pointer, bytes, sizeof(uint64_t))) {
            return false;
        }
        const uint64_t count = NumberAt(bytes.data());
        if (count > header_.block_count) {
            found_.AddProblem("free list: it says that " + std::to_string(count) + " of " +
                              std::to_string(header_.block_count) + " blocks are free");
            return false;
        }
        if (!ReadParts(pointer, bytes, (1 + count) * sizeof(uint64_t))) {
            return false;
        }
        for (uint64_t i = 1; i <= count; i++) {
            free_.insert(NumberAt(bytes.data() + i * sizeof(uint64_t)));
        }
        return true;
    }

    // DuckDB makes a file shorter by free blocks at its end, which its header counts until the next checkpoint.
    void CheckEnd() {
        const auto is_behind = [&](uint64_t block) { return block >= there_ && block < header_.block_count; };
        const uint64_t behind = header_.block_count - std::min(header_.block_count, there_);
        const auto free = static_cast<uint64_t>(std::count_if(free_.begin(), free_.end(), is_behind));
        if (behind > free) {
            found_.AddProblem("the file ends after " + std::to_string(there_) + " of " +
                              std::to_string(header_.block_count) + " blocks, and " +
                              std::to_string(behind - free) + " that are missing are in use");
        }
    }

    void CheckBlocks() {
        const uint64_t at_once = READ_AT_ONCE_BYTES / header_.block_bytes;
        const uint64_t blocks = std::min(header_.block_count, there_);
        for (uint64_t first = 0; first < blocks; first += at_once) {
            if (interrupted_ && interrupted_()) {
                throw Error(ErrorCode::INTERRUPTED, name_ + ": interrupted");
            }
            const uint64_t count = std::min(at_once, blocks - first);
            const std::vector<char> readable = ReadBlocks(first, count);
            for (uint64_t i = 0; i < count; i++) {
                if (readable[i]) {
                    CheckBlock(first + i, buffer_.Data() + i * header_.block_bytes);
                }
            }
        }
    }

    //! Which of them are in `buffer_`: those that are in use, and can be read.
    std::vector<char> ReadBlocks(uint64_t first, uint64_t count) {
        std::vector<char> in_use(count);
        std::vector<StorageFile::Range> ranges;
        for (uint64_t i = 0; i < count; i++) {
            in_use[i] = free_.count(first + i) == 0;
            if (in_use[i]) {
                ranges.push_back(
                    {OffsetOf(first + i), header_.block_bytes, buffer_.Data() + i * header_.block_bytes});
            }
        }
        try {
            file_.ReadRanges(ranges);
        } catch (const Error &) { // one of them at least; which, is found out one by one
            for (uint64_t i = 0; i < count; i++) {
                const std::string what = "block " + std::to_string(first + i);
                in_use[i] = in_use[i] && Read(OffsetOf(first + i), header_.block_bytes,
                                              buffer_.Data() + i * header_.block_bytes, what);
            }
        }
        return in_use;
    }

    void CheckBlock(uint64_t number, const char *block) {
        if (ChecksumHolds(block, header_.block_bytes)) {
            found_.checked++;
        } else if (IsZeros(block, header_.block_bytes)) {
            found_.zeros++;
        } else {
            found_.AddProblem("block " + std::to_string(number) + " at byte offset " +
                              std::to_string(OffsetOf(number)) + ": its checksum is wrong");
        }
    }

    StorageFile &file_;
    const std::string &name_;
    const Interrupted &interrupted_;
    AlignedBuffer buffer_;
    DatabaseHeader header_ = {};
    uint64_t there_ = 0;      //!< blocks that the file is long enough for
    uint64_t parts_read_ = 0; //!< of the free list
    std::unordered_set<uint64_t> free_;
    Contents found_;
};

} // namespace

void Contents::AddProblem(std::string problem) {
    if (problem_count++ < PROBLEMS_MAX) {
        problems.push_back(std::move(problem));
    }
}

Contents CheckDatabaseContents(StorageFile &file, const std::string &name, const Interrupted &interrupted) {
    return DatabaseCheck(file, name, interrupted).Run();
}

} // namespace rawduck
