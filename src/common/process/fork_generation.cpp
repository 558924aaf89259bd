#include "common/process/fork_generation.hpp"

#include "common/error.hpp"

#include <atomic>
#include <pthread.h>

namespace rawduck {
namespace {

std::atomic<uint64_t> generation{0};

void CountFork() {
    generation.fetch_add(1, std::memory_order_relaxed);
}

bool RegisterHandler() {
    int error = pthread_atfork(nullptr, nullptr, CountFork);
    if (error != 0) {
        throw Error(ErrorCode::IO,
                    "pthread_atfork failed, so a fork could not be noticed: " + ErrnoText(error));
    }
    return true;
}

} // namespace

uint64_t ForkGeneration() {
    static const bool registered = RegisterHandler();
    static_cast<void>(registered);
    return generation.load(std::memory_order_relaxed);
}

} // namespace rawduck
