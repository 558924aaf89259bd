#include "gpu/pipeline/blocks_on_device.hpp"

#include "common/error.hpp"

#include <algorithm>

namespace rawduck::gpu {
namespace {

constexpr uint64_t CHECKSUM_BYTES = 8;

} // namespace

BlocksOnDevice::BlocksOnDevice(BlockWindow window, const BlocksOnDevice *before, Device &device,
                               uint64_t block_bytes)
    : window_(std::move(window)) {
    if (window_.copied) {
        device.WaitFor(*window_.copied);
    }
    std::map<uint64_t, uint8_t *> read = window_.places;
    for (const uint64_t block : window_.kept) {
        device.Copy(window_.places.at(block), before->window_.places.at(block), block_bytes);
        read.erase(block);
    }
    if (read.empty()) {
        return;
    }
    errors_ = device.Allocate(read.size() * sizeof(u32));
    device.Fill(errors_.Data(), 0, errors_.Size());
    auto *words = reinterpret_cast<u32 *>(errors_.Data());
    std::vector<ChecksumTask> tasks;
    for (const auto &[block, place] : read) {
        tasks.push_back({place, block_bytes, words + tasks.size()});
        verified_.push_back(block);
    }
    device.VerifyChecksums(tasks);
}

void BlocksOnDevice::RequireSound(Device &device) const {
    std::vector<u32> found(verified_.size());
    device.CopyOut(found.data(), errors_.Data(), found.size() * sizeof(u32));
    const auto bad = std::find_if(found.begin(), found.end(), [](u32 word) { return word != 0; });
    if (bad != found.end()) {
        throw rawduck::Error(ErrorCode::CORRUPT,
                             "the checksum of block " +
                                 std::to_string(verified_[static_cast<size_t>(bad - found.begin())]) +
                                 " of the database does not fit its contents; restore it from a backup");
    }
}

const uint8_t *BlocksOnDevice::At(uint64_t block, uint64_t offset) const {
    return window_.places.at(block) + CHECKSUM_BYTES + offset;
}

} // namespace rawduck::gpu
