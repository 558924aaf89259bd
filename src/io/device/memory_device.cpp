#include "io/device/memory_device.hpp"

#include "common/error.hpp"
#include "io/device/command_size.hpp"
#include "io/device/in_process_targets.hpp"
#include "io/device/synchronous_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr uint64_t CHUNK_BYTES = 1 * MIB;
constexpr uint32_t MAX_QUEUE_DEPTH = 128;

//! The contents, in chunks that are allocated by their first write. Without locks: transfers of different
//! ranges are independent, and overlapping ones are as undefined as on a device.
class MemoryStore {
  public:
    explicit MemoryStore(const MemoryTargetOptions &options)
        : options_(options), chunk_count_((options.capacity_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES),
          chunks_(new std::atomic<char *>[chunk_count_]()) {}

    ~MemoryStore() {
        for (uint64_t i = 0; i < chunk_count_; i++) {
            if (char *chunk = chunks_[i].load(std::memory_order_acquire)) {
                munmap(chunk, CHUNK_BYTES);
            }
        }
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
            uint64_t offset = command.device_offset + done;
            uint64_t within = offset % CHUNK_BYTES;
            uint64_t length = std::min(CHUNK_BYTES - within, command.length - done);
            if (!Copy(command.opcode, offset / CHUNK_BYTES, within, data + done, length)) {
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
        for (uint64_t end = offset + length; offset < end;) {
            uint64_t within = offset % CHUNK_BYTES;
            uint64_t part = std::min(CHUNK_BYTES - within, end - offset);
            if (char *chunk = chunks_[offset / CHUNK_BYTES].load(std::memory_order_acquire)) {
                Zero(chunk + within, chunk + within + part);
            }
            offset += part;
        }
        return true;
    }

  private:
    bool InRange(uint64_t offset, uint64_t length) const {
        return IsAligned(offset, options_.lba_size) && offset <= options_.capacity_bytes &&
               length <= options_.capacity_bytes - offset;
    }

    bool Copy(Opcode opcode, uint64_t index, uint64_t within, char *data, uint64_t length) {
        char *chunk = chunks_[index].load(std::memory_order_acquire);
        if (opcode == Opcode::READ) {
            if (chunk) {
                std::memcpy(data, chunk + within, length);
            } else {
                std::memset(data, 0, length);
            }
            return true;
        }
        if (!chunk && !(chunk = Allocate(chunks_[index]))) {
            return false;
        }
        std::memcpy(chunk + within, data, length);
        return true;
    }

    //! When two threads allocate a chunk at once, one wins and the other's memory is freed.
    static char *Allocate(std::atomic<char *> &slot) {
        void *memory = mmap(nullptr, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return nullptr;
        }
        char *expected = nullptr;
        if (slot.compare_exchange_strong(expected, static_cast<char *>(memory), std::memory_order_acq_rel)) {
            return static_cast<char *>(memory);
        }
        munmap(memory, CHUNK_BYTES);
        return expected;
    }

    static void Zero(char *begin, char *end) {
        static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        auto *first = reinterpret_cast<char *>(AlignUp(reinterpret_cast<uintptr_t>(begin), page));
        auto *last = reinterpret_cast<char *>(AlignDown(reinterpret_cast<uintptr_t>(end), page));
        if (first >= last || madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED) != 0) {
            std::memset(begin, 0, static_cast<size_t>(end - begin));
            return;
        }
        std::memset(begin, 0, static_cast<size_t>(first - begin));
        std::memset(last, 0, static_cast<size_t>(end - last));
    }

    const MemoryTargetOptions options_;
    const uint64_t chunk_count_;
    std::unique_ptr<std::atomic<char *>[]> chunks_;
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
    if (!MemoryTargets::Instance().TryAdd(name, std::make_shared<MemoryStore>(options))) {
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
