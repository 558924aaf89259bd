//! libFuzzer target: mounts damaged images. The input is a list of patches to the metadata of a small volume
//! with some files, and the checksums are made right again, so that the decoder behind them is reached.
//! Whatever the input, mounting, checking, reading and writing either work or throw Error.
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "io/device/synchronous_queue.hpp"
#include "volume/format/record.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

using namespace rawduck;

namespace {

constexpr uint64_t CAPACITY = MIN_VOLUME_BYTES;
constexpr uint32_t LBA = 512;
//! Patches reach the superblock, the snapshot and the first records: everything that is decoded.
constexpr uint64_t PATCHED_BYTES = 64 * KIB;

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
}

// Two mounts that write, so that there is a snapshot with files as well as a log.
std::string MakeBase() {
    std::string base(CAPACITY, '\0');
    std::map<uint64_t, std::string> pages;
    {
        BlockIo io(std::make_unique<OverlayDevice>(base, pages), BlockIoOptions(), "memory:fuzz",
                   std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), LBA);
    }
    Populate(*MountOverlay(base, pages));
    Populate(*MountOverlay(base, pages));
    for (const auto &[offset, page] : pages) {
        base.replace(offset, LBA, page);
    }
    return base;
}

//! Makes the checksums of the superblock, the snapshot and the records behind it right, as far as they can be
//! found by the superblock's own fields.
void Reseal(std::string &head) {
    Superblock sb;
    memcpy(&sb, head.data(), sizeof(sb));
    const uint64_t snapshot = sb.metadata_start[sb.active_area & 1] * ALLOCATION_UNIT_BYTES;
    if (snapshot < head.size() && sb.snapshot_bytes <= head.size() - snapshot) {
        sb.snapshot_crc = Crc32c(0, head.data() + snapshot, sb.snapshot_bytes);
        uint64_t at = snapshot + AlignUp(sb.snapshot_bytes, ALLOCATION_UNIT_BYTES);
        RecordHeader header;
        while (at + sizeof(header) <= head.size()) {
            memcpy(&header, head.data() + at, sizeof(header));
            if (memcmp(header.magic, "RDLG", 4) != 0 ||
                header.payload_bytes > head.size() - at - sizeof(header)) {
                break;
            }
            const std::string record =
                SealRecord(sb.uuid, header.epoch, header.sequence, header.time_us,
                           head.substr(at + sizeof(header), header.payload_bytes), header.item_count, LBA);
            head.replace(at, std::min(record.size(), head.size() - at), record, 0, head.size() - at);
            at += record.size();
        }
    }
    SealSuperblock(sb);
    memcpy(&head[0], &sb, sizeof(sb));
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
    if (size < 1) {
        return 0;
    }
    const bool reseal = (data[0] & 1) != 0;
    std::string head = base.substr(0, PATCHED_BYTES);
    for (size_t at = 1; at + 4 <= size; at += 4) {
        // Two bytes say where, one how (set, add or xor), one what.
        const uint64_t position = (data[at] | data[at + 1] << 8) % PATCHED_BYTES;
        const char value = static_cast<char>(data[at + 3]);
        char &byte = head[position];
        byte = data[at + 2] % 3 == 0 ? value
                                     : static_cast<char>(data[at + 2] % 3 == 1 ? byte + value : byte ^ value);
    }
    if (reseal) {
        Reseal(head);
    }
    std::map<uint64_t, std::string> pages;
    for (uint64_t at = 0; at < PATCHED_BYTES; at += LBA) {
        pages[at] = head.substr(at, LBA);
    }
    try {
        Use(*MountOverlay(base, pages));
    } catch (const Error &) {
        // What a damaged image must do.
    }
    return 0;
}
