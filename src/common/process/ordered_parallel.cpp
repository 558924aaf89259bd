#include "common/process/ordered_parallel.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rawduck {
namespace {

constexpr uint64_t THREADS_MOST = 8;

class Makers {
  public:
    Makers(uint64_t count, uint64_t at_a_time, const std::function<void(uint64_t i)> &make)
        : count_(count), at_a_time_(at_a_time), parts_((count + at_a_time - 1) / at_a_time), make_(make),
          is_made_(parts_, false) {
        const uint64_t wanted = std::min<uint64_t>(
            {THREADS_MOST, std::max(1u, std::thread::hardware_concurrency() / 2), parts_ / 2});
        try {
            while (threads_.size() < wanted) {
                threads_.emplace_back([this] {
                    while (MakePart()) {
                    }
                });
            }
        } catch (const std::system_error &) {
            // The system gives no more threads: fewer will do, and none, too.
        }
    }

    ~Makers() {
        next_part_ = parts_;
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }
    Makers(const Makers &) = delete;
    Makers &operator=(const Makers &) = delete;

    uint64_t Parts() const { return parts_; }
    uint64_t First(uint64_t part) const { return std::min(count_, part * at_a_time_); }

    //! Helps meanwhile.
    void AwaitPart(uint64_t part) {
        while (true) {
            {
                const std::lock_guard<std::mutex> lock(mutex_);
                if (failure_) {
                    std::rethrow_exception(failure_);
                }
                if (is_made_[part]) {
                    return;
                }
            }
            if (!MakePart()) {
                std::unique_lock<std::mutex> lock(mutex_);
                changed_.wait(lock, [&] { return is_made_[part] || failure_; });
            }
        }
    }

  private:
    //! False: somebody makes the last one already.
    bool MakePart() {
        const uint64_t part = next_part_.fetch_add(1);
        if (part >= parts_) {
            return false;
        }
        std::exception_ptr failure;
        try {
            for (uint64_t i = First(part); i < First(part + 1); i++) {
                make_(i);
            }
        } catch (...) {
            failure = std::current_exception();
            next_part_ = parts_;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        is_made_[part] = !failure;
        failure_ = failure_ ? failure_ : failure;
        changed_.notify_all();
        return true;
    }

    const uint64_t count_, at_a_time_, parts_;
    const std::function<void(uint64_t i)> &make_;
    std::atomic<uint64_t> next_part_{0};
    std::mutex mutex_; //!< of what follows
    std::condition_variable changed_;
    std::vector<bool> is_made_;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_; //!< the last: they use the others
};

} // namespace

void OrderedParallel(uint64_t count, uint64_t at_a_time, const std::function<void(uint64_t i)> &make,
                     const std::function<void(uint64_t i)> &take) {
    Makers makers(count, at_a_time, make);
    for (uint64_t part = 0; part < makers.Parts(); part++) {
        makers.AwaitPart(part);
        for (uint64_t i = makers.First(part); i < makers.First(part + 1); i++) {
            take(i);
        }
    }
}

} // namespace rawduck
