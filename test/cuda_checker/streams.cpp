#include "cuda_checker/streams.hpp"

#include "cuda_checker/violation.hpp"

#include <algorithm>
#include <utility>

namespace rawduck::gpu::checker {

StreamQueue *Streams::Create(bool is_blocking) {
    auto *stream = new StreamQueue;
    stream->is_blocking = is_blocking;
    streams_.insert(stream);
    return stream;
}

void Streams::FinishDestroyed() {
    const std::set<StreamQueue *> all = streams_;
    for (StreamQueue *stream : all) {
        if (stream->is_destroyed) {
            Synchronize(*stream);
            streams_.erase(stream);
            delete stream;
        }
    }
}

size_t Streams::Count() const {
    return static_cast<size_t>(std::count_if(
        streams_.begin(), streams_.end(), [](const StreamQueue *stream) { return !stream->is_destroyed; }));
}

StreamQueue *Streams::Find(void *handle) {
    // 2 is the default stream of a thread, which CUDA orders with that of all.
    if (reinterpret_cast<uintptr_t>(handle) <= 2) {
        return &legacy_;
    }
    auto *stream = static_cast<StreamQueue *>(handle);
    if (streams_.count(stream) == 0 || stream->is_destroyed) {
        Violation("a stream that does not exist, or is destroyed, is used");
    }
    return stream;
}

void Streams::Push(StreamQueue &stream, Operation operation) {
    stream.operations.push_back(std::move(operation));
    RunSome();
}

void Streams::Add(StreamQueue &stream, std::string name, std::function<void()> run) {
    Push(stream, {std::move(name), std::move(run), nullptr, false});
}

void Streams::Record(StreamQueue &stream, RecordedEvent &event) {
    event.moment = std::make_shared<Moment>();
    event.moment->stream = &stream;
    Push(stream, {"an event", nullptr, event.moment, false});
}

void Streams::Wait(StreamQueue &stream, const RecordedEvent &event) {
    if (event.moment) {
        Push(stream, {"a wait", nullptr, event.moment, true});
    }
}

void Streams::RunOne(StreamQueue &stream) {
    const Operation operation = std::move(stream.operations.front());
    stream.operations.pop_front();
    if (operation.waits) {
        const auto &moment = operation.moment;
        if (!moment->is_past) {
            RunUntil(*moment->stream, [&] { return moment->is_past; });
        }
        return;
    }
    if (operation.moment) {
        operation.moment->is_past = true;
        return;
    }
    running_ = operation.name;
    operation.run();
    running_.clear();
}

void Streams::RunUntil(StreamQueue &stream, const std::function<bool()> &is_done) {
    if (depth_++ == 0) {
        memory_.Open();
    }
    while (!is_done()) {
        if (stream.operations.empty()) {
            Violation("an event is waited for that nothing will record");
        }
        RunOne(stream);
    }
    if (--depth_ == 0) {
        memory_.Close();
    }
}

void Streams::Synchronize(StreamQueue &stream) {
    if (!stream.operations.empty()) {
        RunUntil(stream, [&] { return stream.operations.empty(); });
    }
}

void Streams::Synchronize(const RecordedEvent &event) {
    if (event.moment && !event.moment->is_past) {
        RunUntil(*event.moment->stream, [&] { return event.moment->is_past; });
    }
}

void Streams::SynchronizeAll() {
    for (StreamQueue *stream : streams_) {
        Synchronize(*stream);
    }
    Synchronize(legacy_);
    FinishDestroyed();
}

void Streams::SetSeed(unsigned seed) {
    seed_ = seed;
    random_.seed(seed);
}

void Streams::RunSome() {
    if (seed_ == 0 || random_() % 8 != 0 || depth_ > 0) {
        return;
    }
    for (StreamQueue *stream : streams_) {
        if (random_() % 2 == 0 && !stream->operations.empty()) {
            size_t left = random_() % stream->operations.size();
            RunUntil(*stream, [&] { return stream->operations.size() <= left; });
        }
    }
}

} // namespace rawduck::gpu::checker
