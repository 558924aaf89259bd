#include "io/engine/xnvme/module/dma_buffers.hpp"

#include <cstring>
#include <new>

namespace rawduck {
namespace {

//! The lowest bits of an opcode say which way its data goes.
constexpr uint8_t TO_CONTROLLER = 1, FROM_CONTROLLER = 2;

} // namespace

std::mutex &LibraryMutex() {
    static auto &mutex = *new std::mutex;
    return mutex;
}

Bounce::Bounce(void *to, nvme_passthru_cmd64 &command)
    : buffer(to), data(reinterpret_cast<void *>(command.addr)), bytes(command.data_len),
      from_controller((command.opcode & FROM_CONTROLLER) != 0) {
    if ((command.opcode & TO_CONTROLLER) != 0) {
        std::memcpy(buffer, data, bytes);
    }
    command.addr = reinterpret_cast<uintptr_t>(buffer);
}

void Bounce::CopyBack() const {
    if (buffer && from_controller) {
        std::memcpy(data, buffer, bytes);
    }
}

DmaBuffers::~DmaBuffers() {
    FreeIdle();
}

void DmaBuffers::SetBytes(size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    FreeIdle();
    bytes_ = bytes;
}

void DmaBuffers::FreeIdle() {
    std::lock_guard<std::mutex> library(LibraryMutex());
    for (void *buffer : idle_) {
        xnvme_buf_free(device_, buffer);
    }
    made_ -= idle_.size();
    idle_.clear();
}

void *DmaBuffers::Allocate() {
    try {
        idle_.reserve(made_ + 1); // so that Give, which libxnvme calls, cannot fail
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
    std::lock_guard<std::mutex> library(LibraryMutex());
    void *buffer = xnvme_buf_alloc(device_, bytes_);
    made_ += buffer ? 1 : 0;
    return buffer;
}

void *DmaBuffers::Take(bool within_limit) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (within_limit && taken_ + bytes_ > limit_) {
        return nullptr;
    }
    void *buffer = nullptr;
    if (idle_.empty()) {
        buffer = Allocate();
    } else {
        buffer = idle_.back();
        idle_.pop_back();
    }
    taken_ += buffer && within_limit ? bytes_ : 0;
    return buffer;
}

void DmaBuffers::Give(void *buffer, bool within_limit) {
    std::lock_guard<std::mutex> guard(mutex_);
    taken_ -= within_limit ? bytes_ : 0;
    idle_.push_back(buffer);
}

} // namespace rawduck
