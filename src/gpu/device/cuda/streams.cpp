#include "gpu/device/cuda/streams.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck::gpu::cuda {
namespace {

//! Scratch memory: what CopyOut waits for, answers that are awaited later, then two halves that take turns.
constexpr uint64_t COPY_OUT_BYTES = 64 << 10, ANSWER_BYTES = 32 << 10, BEFORE_HALVES = 512 << 10;
constexpr uint64_t HALF_BYTES = (Gpu::SCRATCH_BYTES - BEFORE_HALVES) / 2;
constexpr uint64_t PULLED_MOST = 256 << 10;
constexpr uint64_t ALIGNMENT = 16;

} // namespace

//! In scratch memory of its streams, which it keeps.
class PinnedAnswer final : public Answer {
  public:
    PinnedAnswer(std::shared_ptr<Streams> streams, size_t index)
        : streams_(std::move(streams)), index_(index) {}

    ~PinnedAnswer() override {
        const Current current(*streams_->gpu_, std::nothrow);
        if (current.IsSet() && !is_there_) { // the device may still write to it
            streams_->gpu_->Note(
                TwiceAtMost([&] { return streams_->driver_.event_synchronize(streams_->asked_[index_]); }),
                Driver::event_synchronize_symbol);
        }
        const std::lock_guard<std::mutex> lock(streams_->mutex_);
        streams_->is_asked_[index_] = false;
    }

    const uint8_t *Await() override {
        const Current current(*streams_->gpu_);
        RAWDUCK_CUDA(streams_->driver_, event_synchronize, "waiting for results of " + streams_->gpu_->Name(),
                     streams_->asked_[index_]);
        is_there_ = true;
        return streams_->scratch_ + COPY_OUT_BYTES + index_ * ANSWER_BYTES;
    }

  private:
    const std::shared_ptr<Streams> streams_;
    const size_t index_;
    bool is_there_ = false;
};

std::unique_ptr<Answer> Streams::AskFor(const std::shared_ptr<Streams> &streams, const uint8_t *device_from,
                                        uint64_t bytes) {
    static_assert(COPY_OUT_BYTES + ANSWERS * ANSWER_BYTES <= BEFORE_HALVES);
    Streams &self = *streams;
    const std::lock_guard<std::mutex> lock(self.mutex_);
    const auto free = std::find(self.is_asked_.begin(), self.is_asked_.end(), false);
    if (bytes > ANSWER_BYTES || free == self.is_asked_.end()) {
        return nullptr;
    }
    const auto index = static_cast<size_t>(free - self.is_asked_.begin());
    const std::string tried = "copying from " + self.gpu_->Name();
    RAWDUCK_CUDA(self.driver_, copy_out, tried, self.scratch_ + COPY_OUT_BYTES + index * ANSWER_BYTES,
                 PointerOf(device_from), bytes, self.Working());
    self.is_asked_[index] = true; // for ever, where nothing tells when the copy is done
    RAWDUCK_CUDA(self.driver_, event_record, tried, self.asked_[index], self.Working());
    return std::make_unique<PinnedAnswer>(streams, index);
}

Streams::Streams(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), driver_(gpu_->Calls()) {
    const Current current(*gpu_);
    try {
        for (Stream &stream : streams_) {
            RAWDUCK_CUDA(driver_, stream_create, "making a stream on " + gpu_->Name(), &stream,
                         STREAM_NON_BLOCKING, &stream == streams_.data() ? FIRST_PRIORITY : 0);
        }
        for (EventHandle *event : Events()) {
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
    for (const EventHandle *event : Events()) {
        if (*event) {
            gpu_->Note(driver_.event_destroy(*event), Driver::event_destroy_symbol);
        }
    }
    for (const Stream stream : streams_) {
        if (stream) {
            gpu_->Note(driver_.stream_destroy(stream), Driver::stream_destroy_symbol);
        }
    }
}

std::vector<EventHandle *> Streams::Events() {
    std::vector<EventHandle *> events = {&answered_, &half_is_copied_[0], &half_is_copied_[1]};
    for (EventHandle &event : asked_) {
        events.push_back(&event);
    }
    return events;
}

void Streams::CopyIn(uint8_t *device_to, const uint8_t *from, uint64_t bytes,
                     const std::function<void(const CopiedPiece &piece)> &pull) {
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
        uint8_t *pinned = scratch_ + BEFORE_HALVES + half_ * HALF_BYTES + used_;
        std::memcpy(pinned, from, part);
        if (part <= PULLED_MOST && reinterpret_cast<uintptr_t>(device_to) % ALIGNMENT == 0) {
            pull({pinned, device_to, part});
        } else {
            RAWDUCK_CUDA(driver_, copy_in, "copying to " + gpu_->Name(), PointerOf(device_to), pinned, part,
                         Working());
        }
        used_ += (part + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        device_to += part;
        from += part;
        bytes -= part;
    }
}

// Others may go on to tell the device what to do meanwhile.
void Streams::CopyOut(uint8_t *to, const uint8_t *device_from, uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(copy_out_mutex_);
    while (bytes > 0) {
        const uint64_t part = std::min(bytes, COPY_OUT_BYTES);
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

void Streams::AwaitFreed() {
    for (const Stream stream : {streams_[1], streams_[2], streams_[3]}) {
        RAWDUCK_CUDA(driver_, stream_synchronize, "waiting for memory of " + gpu_->Name(), stream);
    }
}

bool Streams::Order(Stream first, Stream second) noexcept {
    EventHandle event = nullptr;
    Result result = driver_.event_create(&event, EVENT_DISABLE_TIMING);
    if (result == SUCCESS) {
        result = driver_.event_record(event, first);
        result = result == SUCCESS ? driver_.stream_wait(second, event, 0) : result;
        gpu_->Note(driver_.event_destroy(event), Driver::event_destroy_symbol);
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
            gpu_->WaitForAllNoted();
        }
    }
    gpu_->Note(driver_.memory_free(PointerOf(device_data), freeing), Driver::memory_free_symbol);
}

} // namespace rawduck::gpu::cuda
