//! The streams of a device, and pinned memory through which small things are copied. Memory of the device keeps them.
#pragma once

#include "gpu/device/cuda/gpu.hpp"

#include <array>
#include <functional>
#include <memory>
#include <mutex>

namespace rawduck::gpu::cuda {

class Streams {
  public:
    explicit Streams(std::shared_ptr<Gpu> gpu);
    //! Waits for the working stream.
    ~Streams();
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;

    Stream Copying() const { return streams_[0]; }
    Stream Working() const { return streams_[1]; }

    //! Both in the working stream. `from` may be changed when CopyIn returns. The context is current.
    //! What is small is pulled: in the copy engine it would wait for what is large.
    void CopyIn(uint8_t *device_to, const uint8_t *from, uint64_t bytes,
                const std::function<void(const CopiedPiece &piece)> &pull);
    void CopyOut(uint8_t *to, const uint8_t *device_from, uint64_t bytes);
    //! Null where there is no room for it. The context is current.
    static std::unique_ptr<Answer> AskFor(const std::shared_ptr<Streams> &streams, const uint8_t *device_from,
                                          uint64_t bytes);
    //! Waits for all memory that was freed, and for whom that waits. The context is current.
    void AwaitFreed();
    //! Frees memory behind everything that may use it.
    void Free(uint8_t *device_data, Purpose purpose) noexcept;

  private:
    friend class PinnedAnswer;
    static constexpr size_t ANSWERS = 8; //!< that are asked for and wanted at a time

    //! What the second stream does later is behind what the first one was told before.
    bool Order(Stream first, Stream second) noexcept;
    std::vector<EventHandle *> Events();
    void Close() noexcept;

    const std::shared_ptr<Gpu> gpu_;
    const Driver &driver_;
    std::array<Stream, 4> streams_{}; //!< copying, working, returning COPIED and SHARED memory
    uint8_t *scratch_ = nullptr;
    std::mutex copy_out_mutex_; //!< of what follows, and of the first part of the scratch memory
    EventHandle answered_ = nullptr;
    std::mutex mutex_;                         //!< of what follows, and of the rest
    std::array<EventHandle, ANSWERS> asked_{}; //!< past when what was asked for is there
    std::array<bool, ANSWERS> is_asked_{};
    std::array<EventHandle, 2> half_is_copied_{};
    size_t half_ = 0;
    uint64_t used_ = 0; //!< bytes of this half
};

} // namespace rawduck::gpu::cuda
