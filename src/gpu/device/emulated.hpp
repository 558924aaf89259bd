//! A device without a GPU: memory of this process, the same decoding kernels as loops in the calling thread.
#pragma once

#include "gpu/device/device.hpp"

namespace rawduck::gpu {

class EmulatedDevice final : public Device {
  public:
    const char *Name() const override { return "emulated"; }
    int32_t TypeNumber() const override { return 1; }

    Memory Allocate(uint64_t bytes) override;
    void CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) override;
    void CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) override;
    void Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) override;
    void Decode(Codec codec, Kind kind, Phase phase, const std::vector<SegmentTask> &tasks,
                const std::vector<GroupItem> &items) override;
    void VerifyChecksums(const std::vector<ChecksumTask> &tasks) override;
    uint64_t SumLengths(const uint32_t *device_lengths, uint64_t count, uint64_t *device_offsets) override;
    uint64_t ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) override;
    void Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                uint8_t *device_to) override;
    StringExtent Fitting(const uint64_t *device_offsets, const RowSelection &rows,
                         uint64_t byte_limit) override;
    void GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars, const RowSelection &rows,
                       int32_t *device_to, uint8_t *device_chars_to) override;
    uint64_t PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) override;
    void Convert(Conversion conversion, const uint8_t *device_from, uint64_t width, uint64_t count,
                 uint32_t scale, uint8_t *device_to) override;
    void ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value, uint64_t width,
                      uint8_t *device_values) override;
};

} // namespace rawduck::gpu
