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
    std::vector<CopiedPiece> kept;
    for (const uint64_t block : window_.kept) {
        kept.push_back({before->window_.places.at(block), window_.places.at(block), block_bytes});
        read.erase(block);
    }
    device.CopyPieces(kept);
    if (read.empty()) {
        return;
    }
    const Memory differences = device.Allocate(read.size() * sizeof(u64));
    device.Fill(differences.Data(), 0, differences.Size());
    auto *numbers = reinterpret_cast<u64 *>(differences.Data());
    std::vector<ChecksumTask> tasks;
    for (const auto &[block, place] : read) {
        tasks.push_back({place, block_bytes, numbers + tasks.size()});
        verified_.push_back(block);
    }
    device.VerifyChecksums(tasks);
    differences_ = device.AskFor(differences.Data(), differences.Size());
}

void BlocksOnDevice::RequireSound() const {
    if (!differences_) {
        return;
    }
    const auto *found = reinterpret_cast<const u64 *>(differences_->Await());
    const auto *end = found + verified_.size();
    const auto *bad = std::find_if(found, end, [](u64 difference) { return difference != 0; });
    if (bad != end) {
        throw rawduck::Error(ErrorCode::CORRUPT,
                             "the checksum of block " +
                                 std::to_string(verified_[static_cast<size_t>(bad - found)]) +
                                 " of the database does not fit its contents; restore it from a backup");
    }
}

const uint8_t *BlocksOnDevice::At(uint64_t block, uint64_t offset) const {
    return window_.places.at(block) + CHECKSUM_BYTES + offset;
}

} // namespace rawduck::gpu
