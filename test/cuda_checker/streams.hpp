//! Streams as CUDA orders them, run as late as that allows, or at random times before: a caller that does not wait finds
//! what a GPU that is slow would leave. Used under the checker's lock.
#pragma once

#include "cuda_checker/memory.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>

namespace rawduck::gpu::checker {

struct StreamQueue;

//! A moment in a stream.
struct Moment {
    StreamQueue *stream = nullptr;
    bool is_past = false;
};

struct Operation {
    std::string name;
    std::function<void()> run;      //!< null: waits
    std::shared_ptr<Moment> moment; //!< becomes past; or, where `waits`, is waited for
    bool waits = false;
};

struct StreamQueue {
    std::deque<Operation> operations;
    bool is_blocking = false;  //!< ordered with the default stream
    bool is_destroyed = false; //!< what is left in it is run nevertheless, as late as in others
};

//! What the application calls an event.
struct RecordedEvent {
    std::shared_ptr<Moment> moment; //!< null: never recorded
};

class Streams {
  public:
    explicit Streams(DeviceMemory &memory) : memory_(memory) {}

    StreamQueue *Create(bool is_blocking);
    //! Does not wait for what is left in it, as the driver does not.
    void Destroy(StreamQueue *stream) { stream->is_destroyed = true; }
    StreamQueue *Find(void *handle);
    StreamQueue &Legacy() { return legacy_; }
    size_t Count() const;

    void Add(StreamQueue &stream, std::string name, std::function<void()> run);
    void Record(StreamQueue &stream, RecordedEvent &event);
    void Wait(StreamQueue &stream, const RecordedEvent &event);
    void Synchronize(StreamQueue &stream);
    void Synchronize(const RecordedEvent &event);
    void SynchronizeAll();

    //! 0: as late as possible; others are seeds of random times.
    void SetSeed(unsigned seed);
    //! The operation that is being run; for messages.
    const std::string &Running() const { return running_; }

  private:
    //! Runs what is left in those that were destroyed.
    void FinishDestroyed();
    void Push(StreamQueue &stream, Operation operation);
    void RunOne(StreamQueue &stream);
    void RunUntil(StreamQueue &stream, const std::function<bool()> &is_done);
    void RunSome();

    DeviceMemory &memory_;
    std::set<StreamQueue *> streams_;
    StreamQueue legacy_;
    unsigned seed_ = 0;
    std::minstd_rand random_;
    std::string running_;
    int depth_ = 0;
};

} // namespace rawduck::gpu::checker
