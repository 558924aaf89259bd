#include "gpu/device/cuda/streams.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck::gpu::cuda {
namespace {

//! Scratch memory: answers, then two halves that take turns.
constexpr uint64_t ANSWER_BYTES = 64 << 10;
constexpr uint64_t HALF_BYTES = (Gpu::SCRATCH_BYTES - ANSWER_BYTES) / 2;

DevicePointer PointerOf(const uint8_t *device_data) {
    return reinterpret_cast<DevicePointer>(device_data);
}

} // namespace

Streams::Streams(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), driver_(gpu_->Calls()) {
    const Current current(*gpu_);
    try {
        for (Stream &stream : streams_) {
            RAWDUCK_CUDA(driver_, stream_create, "making a stream on " + gpu_->Name(), &stream,
                         STREAM_NON_BLOCKING);
        }
        for (EventHandle *event : {&answered_, &half_is_copied_[0], &half_is_copied_[1]}) {
            RAWDUCK_CUDA(driver_, event_create, "making an event on " + gpu_->Name(), event,
                         EVENT_DISABLE_TIMING);
        }
        scratch_ = gpu_->TakeScratch();
    } catch (...) {
        Close();
        throw;
    }
}

Streams::~Streams() {
    const Current current(*gpu_, std::nothrow);
    if (current.IsSet()) {
        Close();
    }
}

void Streams::Close() noexcept {
    if (scratch_) {
        gpu_->Note(TwiceAtMost([&] { return driver_.stream_synchronize(Working()); }),
                   Driver::stream_synchronize_symbol);
        gpu_->GiveBackScratch(scratch_);
    }
    for (const EventHandle event : {answered_, half_is_copied_[0], half_is_copied_[1]}) {
        if (event) {
            gpu_->Note(TwiceAtMost([&] { return driver_.event_destroy(event); }),
                       Driver::event_destroy_symbol);
        }
    }
    for (const Stream stream : streams_) {
        if (stream) {
            gpu_->Note(TwiceAtMost([&] { return driver_.stream_destroy(stream); }),
                       Driver::stream_destroy_symbol);
        }
    }
}

void Streams::CopyIn(uint8_t *device_to, const uint8_t *from, uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (bytes > 0) {
        if (used_ == HALF_BYTES) {
            RAWDUCK_CUDA(driver_, event_record, "noting a copy to " + gpu_->Name(), half_is_copied_[half_],
                         Working());
            half_ = 1 - half_;
            used_ = 0;
            // Before its first record an event counts as past.
            RAWDUCK_CUDA(driver_, event_synchronize, "waiting for a copy to " + gpu_->Name(),
                         half_is_copied_[half_]);
        }
        const uint64_t part = std::min(bytes, HALF_BYTES - used_);
        uint8_t *pinned = scratch_ + ANSWER_BYTES + half_ * HALF_BYTES + used_;
        std::memcpy(pinned, from, part);
        RAWDUCK_CUDA(driver_, copy_in, "copying to " + gpu_->Name(), PointerOf(device_to), pinned, part,
                     Working());
        used_ += part;
        device_to += part;
        from += part;
        bytes -= part;
    }
}

void Streams::CopyOut(uint8_t *to, const uint8_t *device_from, uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (bytes > 0) {
        const uint64_t part = std::min(bytes, ANSWER_BYTES);
        const std::string tried = "waiting for results of " + gpu_->Name();
        RAWDUCK_CUDA(driver_, copy_out, "copying from " + gpu_->Name(), scratch_, PointerOf(device_from),
                     part, Working());
        RAWDUCK_CUDA(driver_, event_record, tried, answered_, Working());
        RAWDUCK_CUDA(driver_, event_synchronize, tried, answered_);
        std::memcpy(to, scratch_, part);
        to += part;
        device_from += part;
        bytes -= part;
    }
}

bool Streams::Order(Stream first, Stream second) noexcept {
    EventHandle event = nullptr;
    Result result = driver_.event_create(&event, EVENT_DISABLE_TIMING);
    if (result == SUCCESS) {
        result = driver_.event_record(event, first);
        result = result == SUCCESS ? driver_.stream_wait(second, event, 0) : result;
        gpu_->Note(TwiceAtMost([&] { return driver_.event_destroy(event); }), Driver::event_destroy_symbol);
    }
    return result == SUCCESS;
}

void Streams::Free(uint8_t *device_data, Purpose purpose) noexcept {
    const Current current(*gpu_, std::nothrow);
    if (!current.IsSet()) {
        return; // in a child made by fork(), or the failure is noted
    }
    Stream freeing = Working();
    if (purpose != Purpose::WORK) {
        freeing = purpose == Purpose::COPIED ? streams_[2] : streams_[3];
        const Stream other = purpose == Purpose::COPIED ? Copying() : LegacyStream();
        if (!Order(Working(), freeing) || !Order(other, freeing)) {
            gpu_->Note(TwiceAtMost([&] { return driver_.context_synchronize(); }),
                       Driver::context_synchronize_symbol);
        }
    }
    gpu_->Note(TwiceAtMost([&] { return driver_.memory_free(PointerOf(device_data), freeing); }),
               Driver::memory_free_symbol);
}

} // namespace rawduck::gpu::cuda
