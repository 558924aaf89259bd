//! What devices have in common: everything that is done by kernels, whoever runs them.
#pragma once

#include "gpu/device/device.hpp"

namespace rawduck::gpu {

//! What was copied when it was asked for.
class ReadyAnswer final : public Answer {
  public:
    explicit ReadyAnswer(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
    const uint8_t *Await() override { return bytes_.data(); }

  private:
    std::vector<uint8_t> bytes_;
};

class KernelDevice : public Device {
  public:
    void CopyPieces(const std::vector<CopiedPiece> &pieces) final { Pull(pieces, Beside::NONE); }
    void Decode(Phase phase, const std::vector<SegmentTask> &tasks, const std::vector<GroupItem> &items,
                const std::vector<DecodeLaunch> &launches) final;
    void VerifyChecksums(const std::vector<ChecksumTask> &tasks) final;
    uint64_t SumLengths(const uint32_t *device_lengths, uint64_t count, uint64_t *device_offsets) final;
    void ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) final;
    void Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                uint8_t *device_to) final;
    StringExtent Fitting(const uint64_t *device_offsets, const RowSelection &rows, uint64_t byte_limit) final;
    void GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars, const RowSelection &rows,
                       uint64_t bytes, int32_t *device_to, uint8_t *device_chars_to) final;
    void PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) final;
    uint64_t PackBitsAndCount(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) final;
    void Convert(Conversion conversion, const uint8_t *device_from, uint64_t width, uint64_t count,
                 uint32_t scale, uint8_t *device_to) final;
    void ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value, uint64_t width,
                      uint8_t *device_values) final;

  protected:
    //! Beside which calls a kernel runs.
    enum class Beside { NONE, ALL_BUT_COPIES };
    //! Copies by a kernel, from the device or from pinned memory.
    void Pull(const std::vector<CopiedPiece> &pieces, Beside beside);
    //! A kernel of gpu/kernels, `blocks` > 0 thread blocks. `arguments` is its structure, of `bytes` bytes.
    virtual void Launch(const char *kernel, uint64_t blocks, const void *arguments, uint64_t bytes,
                        Beside beside) = 0;

  private:
    template <class ARGUMENTS> void Run(const char *kernel, uint64_t blocks, const ARGUMENTS &arguments) {
        if (blocks > 0) {
            Launch(kernel, blocks, &arguments, sizeof(arguments), Beside::NONE);
        }
    }

    template <class T> Memory Upload(const std::vector<T> &values) {
        Memory memory = Allocate(values.size() * sizeof(T));
        CopyIn(memory.Data(), values.data(), memory.Size());
        return memory;
    }
};

} // namespace rawduck::gpu
