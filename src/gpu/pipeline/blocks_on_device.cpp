#include "gpu/pipeline/blocks_on_device.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck::gpu {
namespace {

constexpr uint64_t CHECKSUM_BYTES = 8;

} // namespace

BlocksOnDevice::BlocksOnDevice(const std::set<uint64_t> &wanted, BlockSource &source, Device &device,
                               DecodeCounters &counters)
    : memory_(device.Allocate(wanted.size() * source.BlockBytes())) {
    const uint64_t block_bytes = source.BlockBytes();
    const uint64_t slot_blocks = std::max<uint64_t>(1, SLOT_BYTES / block_bytes);
    std::vector<uint8_t> slot(std::min<uint64_t>(slot_blocks, wanted.size()) * block_bytes);
    uint8_t *to = memory_.Data();
    for (auto next = wanted.begin(); next != wanted.end();) {
        const uint64_t first = *next;
        uint64_t count = 0;
        for (; next != wanted.end() && *next == first + count && count < slot_blocks; ++next, ++count) {
            places_[*next] = to + count * block_bytes;
        }
        source.Read(first, count, slot.data());
        device.CopyIn(to, slot.data(), count * block_bytes);
        to += count * block_bytes;
        counters.bytes_read += count * block_bytes;
        counters.bytes_copied += count * block_bytes;
    }
    Verify(device, block_bytes);
}

void BlocksOnDevice::Verify(Device &device, uint64_t block_bytes) const {
    const Memory errors = device.Allocate(places_.size() * sizeof(u32));
    device.Fill(errors.Data(), 0, errors.Size());
    auto *words = reinterpret_cast<u32 *>(errors.Data());
    std::vector<ChecksumTask> tasks;
    for (const auto &place : places_) {
        tasks.push_back({place.second, block_bytes, words + tasks.size()});
    }
    device.VerifyChecksums(tasks);
    std::vector<u32> found(tasks.size());
    device.CopyOut(found.data(), errors.Data(), errors.Size());
    const auto bad = std::find_if(found.begin(), found.end(), [](u32 word) { return word != 0; });
    if (bad != found.end()) {
        const uint64_t block = std::next(places_.begin(), bad - found.begin())->first;
        throw rawduck::Error(ErrorCode::CORRUPT,
                             "the checksum of block " + std::to_string(block) +
                                 " of the database does not fit its contents; restore it from a backup");
    }
}

const uint8_t *BlocksOnDevice::At(uint64_t block, uint64_t offset) const {
    return places_.at(block) + CHECKSUM_BYTES + offset;
}

} // namespace rawduck::gpu
