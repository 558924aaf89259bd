#include "io/device/memory_device.hpp"

#include "common/error.hpp"
#include "io/device/command_size.hpp"
#include "io/device/in_process_targets.hpp"
#include "io/device/synchronous_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <shared_mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

//! What its first write makes usable.
constexpr uint64_t CHUNK_BYTES = 1 * MIB;
//! What is pinned at once: a multiple of the chunk.
constexpr uint64_t REGION_BYTES = 32 * MIB;
constexpr uint32_t MAX_QUEUE_DEPTH = 128;

//! The contents: one range of addresses, whose memory comes with the first write of each chunk. Transfers take no lock:
//! those of different ranges are independent, and overlapping ones are as undefined as on a device.
class MemoryStore {
  public:
    //! Throws Error NO_SPACE.
    MemoryStore(const std::string &name, const MemoryTargetOptions &options)
        : options_(options), reserved_(AlignUp(options.capacity_bytes, REGION_BYTES)),
          is_usable_(new std::atomic<bool>[reserved_ / CHUNK_BYTES]()),
          is_pinned_(reserved_ / REGION_BYTES, false) {
        void *memory =
            mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            throw Error(ErrorCode::NO_SPACE, "memory:" + name + ": cannot create it: the system gives no " +
                                                 std::to_string(reserved_ >> 20) +
                                                 " MiB of addresses; make it smaller");
        }
        memory_ = static_cast<char *>(memory);
    }

    ~MemoryStore() {
        pins_.clear();
        munmap(memory_, reserved_);
    }
    MemoryStore(const MemoryStore &) = delete;
    MemoryStore &operator=(const MemoryStore &) = delete;

    const MemoryTargetOptions &Options() const { return options_; }

    int64_t Transfer(const Command &command) {
        auto address = reinterpret_cast<uintptr_t>(command.data);
        if (command.length == 0 || command.length > options_.max_transfer_bytes ||
            !IsAligned(command.length, options_.lba_size) || !IsAligned(address, options_.memory_alignment) ||
            !InRange(command.device_offset, command.length)) {
            return -EINVAL;
        }
        auto *data = static_cast<char *>(command.data);
        for (uint64_t done = 0; done < command.length;) {
            const uint64_t offset = command.device_offset + done;
            const uint64_t length = std::min(CHUNK_BYTES - offset % CHUNK_BYTES, command.length - done);
            if (!Copy(command.opcode, offset, data + done, length)) {
                return -ENOMEM;
            }
            done += length;
        }
        return command.length;
    }

    //! Gives whole pages back to the system. The range reads as zeros afterwards.
    bool Deallocate(uint64_t offset, uint64_t length) {
        if (!InRange(offset, length)) {
            return false;
        }
        const std::shared_lock<std::shared_mutex> lock(pin_mutex_);
        for (uint64_t end = offset + length; offset < end;) {
            const uint64_t part = std::min(CHUNK_BYTES - offset % CHUNK_BYTES, end - offset);
            if (is_usable_[offset / CHUNK_BYTES].load(std::memory_order_acquire)) {
                Zero(memory_ + offset, memory_ + offset + part, is_pinned_[offset / REGION_BYTES]);
            }
            offset += part;
        }
        return true;
    }

    //! As Device::PinnedMemory.
    const char *Pinned(uint64_t offset, uint64_t &length, MemoryPinner &pinner) {
        if (length == 0 || !InRange(offset, length) || !Pin(offset / REGION_BYTES, pinner)) {
            return nullptr;
        }
        length = std::min(length, REGION_BYTES - offset % REGION_BYTES);
        return memory_ + offset;
    }

  private:
    bool InRange(uint64_t offset, uint64_t length) const {
        return IsAligned(offset, options_.lba_size) && offset <= options_.capacity_bytes &&
               length <= options_.capacity_bytes - offset;
    }

    //! Within a chunk.
    bool Copy(Opcode opcode, uint64_t offset, char *data, uint64_t length) {
        const bool is_usable = is_usable_[offset / CHUNK_BYTES].load(std::memory_order_acquire);
        if (opcode == Opcode::WRITE) {
            if (!is_usable && !MakeUsable(offset / CHUNK_BYTES)) {
                return false;
            }
            std::memcpy(memory_ + offset, data, length);
        } else if (is_usable) {
            std::memcpy(data, memory_ + offset, length);
        } else {
            std::memset(data, 0, length);
        }
        return true;
    }

    //! Two threads may do it at once.
    bool MakeUsable(uint64_t chunk) {
        if (mprotect(memory_ + chunk * CHUNK_BYTES, CHUNK_BYTES, PROT_READ | PROT_WRITE) != 0) {
            return false;
        }
        is_usable_[chunk].store(true, std::memory_order_release);
        return true;
    }

    //! By the first group that asks: another one cannot do it once more.
    bool Pin(uint64_t region, MemoryPinner &pinner) {
        const std::unique_lock<std::shared_mutex> lock(pin_mutex_);
        if (is_pinned_[region]) {
            return pinned_by_ == pinner.Group();
        }
        if (pinned_by_ && pinned_by_ != pinner.Group()) {
            return false;
        }
        constexpr uint64_t CHUNKS = REGION_BYTES / CHUNK_BYTES;
        for (uint64_t chunk = region * CHUNKS; chunk < (region + 1) * CHUNKS; chunk++) {
            if (!is_usable_[chunk] && !MakeUsable(chunk)) {
                return false;
            }
        }
        char *const begin = memory_ + region * REGION_BYTES;
        // What a child has in common is copied by the first write of either, and pinned is only one of both.
        if (madvise(begin, REGION_BYTES, MADV_DONTFORK) != 0) {
            return false;
        }
        std::shared_ptr<void> pin = pinner.Pin(begin, REGION_BYTES);
        if (!pin) {
            return false;
        }
        pins_.push_back(std::move(pin));
        is_pinned_[region] = true;
        pinned_by_ = pinner.Group();
        return true;
    }

    //! Pages that are pinned stay: whoever reads them would not see those that come in their place.
    static void Zero(char *begin, char *end, bool is_pinned) {
        static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        auto *first = reinterpret_cast<char *>(AlignUp(reinterpret_cast<uintptr_t>(begin), page));
        auto *last = reinterpret_cast<char *>(AlignDown(reinterpret_cast<uintptr_t>(end), page));
        if (is_pinned || first >= last ||
            madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED) != 0) {
            std::memset(begin, 0, static_cast<size_t>(end - begin));
            return;
        }
        std::memset(begin, 0, static_cast<size_t>(first - begin));
        std::memset(last, 0, static_cast<size_t>(end - last));
    }

    const MemoryTargetOptions options_;
    const uint64_t reserved_;
    char *memory_ = nullptr;
    const std::unique_ptr<std::atomic<bool>[]> is_usable_; //!< of each chunk

    std::shared_mutex pin_mutex_; //!< of what follows; held exclusively while a region becomes pinned
    std::vector<bool> is_pinned_; //!< of each region
    const void *pinned_by_ = nullptr;
    std::vector<std::shared_ptr<void>> pins_;
};

class MemoryDevice final : public Device {
  public:
    MemoryDevice(std::shared_ptr<MemoryStore> store, const Target &target, const DeviceOptions &options)
        : store_(std::move(store)) {
        const auto &target_options = store_->Options();
        caps_.engine = "memory";
        caps_.engine_reason = "the target is process memory";
        caps_.capacity_bytes = target_options.capacity_bytes;
        caps_.lba_size = target_options.lba_size;
        caps_.memory_alignment = target_options.memory_alignment;
        caps_.max_transfer_bytes =
            std::min(target_options.max_transfer_bytes,
                     CommandSizeLimit(target.name, options, target_options.max_transfer_bytes,
                                      target_options.lba_size));
        caps_.max_queue_depth = MAX_QUEUE_DEPTH;
        caps_.volatile_write_cache = false;
        caps_.deallocate = !options.read_only;
        caps_.read_only = options.read_only;
    }

    const Capabilities &Caps() const override { return caps_; }

    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        uint32_t bounded = std::max(1u, std::min(depth, MAX_QUEUE_DEPTH));
        return std::make_unique<SynchronousQueue>(bounded, [this](const Command &command) -> int64_t {
            bool refused = command.opcode == Opcode::WRITE && caps_.read_only;
            return refused ? -EBADF : store_->Transfer(command);
        });
    }

    void Flush() override {}

    const char *PinnedMemory(uint64_t device_offset, uint64_t &length, MemoryPinner &pinner) override {
        return store_->Pinned(device_offset, length, pinner);
    }

    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        return caps_.deallocate && store_->Deallocate(device_offset, length);
    }

  private:
    std::shared_ptr<MemoryStore> store_;
    Capabilities caps_;
};

using MemoryTargets = InProcessTargets<MemoryStore>;

void CheckOptions(const std::string &name, const MemoryTargetOptions &options) {
    auto refuse = [&](const std::string &why) {
        throw Error(ErrorCode::INVALID, "memory:" + name + ": cannot create it: " + why);
    };
    if (name.empty()) {
        refuse("a memory target needs a name, such as memory:scratch");
    }
    if (options.lba_size != 512 && options.lba_size != 4096) {
        refuse("its LBA size must be 512 or 4096, not " + std::to_string(options.lba_size));
    }
    if (options.capacity_bytes == 0 || !IsAligned(options.capacity_bytes, options.lba_size)) {
        refuse("its capacity of " + std::to_string(options.capacity_bytes) +
               " bytes must be a multiple of the LBA size and not 0");
    }
    if (options.memory_alignment == 0 || !IsAligned(options.memory_alignment, options.memory_alignment)) {
        refuse("its memory alignment of " + std::to_string(options.memory_alignment) +
               " must be a power of two");
    }
    if (options.max_transfer_bytes == 0 || !IsAligned(options.max_transfer_bytes, options.lba_size)) {
        refuse("its largest command of " + std::to_string(options.max_transfer_bytes) +
               " bytes must be a multiple of the LBA size and not 0");
    }
}

} // namespace

std::unique_ptr<Device> OpenMemoryDevice(const Target &target, const DeviceOptions &options) {
    std::shared_ptr<MemoryStore> store = MemoryTargets::Instance().Find(target.path);
    if (!store) {
        throw Error(ErrorCode::NOT_FOUND,
                    target.name + ": there is no such memory target in this process; format it first");
    }
    return std::make_unique<MemoryDevice>(std::move(store), target, options);
}

void CreateMemoryTarget(const std::string &name, const MemoryTargetOptions &options) {
    CheckOptions(name, options);
    if (!MemoryTargets::Instance().TryAdd(name, std::make_shared<MemoryStore>(name, options))) {
        throw Error(ErrorCode::EXISTS,
                    "memory:" + name + ": a memory target of this name exists; drop it first");
    }
}

bool MemoryTargetExists(const std::string &name) {
    return MemoryTargets::Instance().Find(name) != nullptr;
}

void DropMemoryTarget(const std::string &name) {
    MemoryTargets::Instance().Remove(name);
}

} // namespace rawduck
