//! What the processor does for a command, by engine: `command_bench TARGET ENGINE [POLLING]` in a guest whose clock
//! counts instructions and that has one processor (test/nvme/run.sh instructions), so that nanoseconds are
//! instructions. Prints a line per case: engine, case, and for each command: instructions of all that runs, interrupts
//! included; system calls; interrupts of the drive.
//!
//! ENGINE is one of rawduck's, or "fixed": io_uring_cmd with buffers that were registered with the ring, which is
//! the least that the kernel's driver can do. Into registered memory where the engine has a use for it.
#include "common/clock.hpp"
#include "common/memory/huge_memory.hpp"
#include "device_events.hpp"
#include "io/block_io.hpp"
#include "io/device/nvme_device.hpp"
#include "io/open_device.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <liburing.h>
#include <optional>
#include <sched.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rawduck;

namespace {

constexpr uint64_t NS_PER_CASE = 50000000, WARM_UP_COMMANDS = 200, COUNTED_COMMANDS = 2000;
constexpr uint64_t SPAN_BYTES = 64 * MIB;
constexpr uint32_t DEPTH_MAX = 32;
//! Where the NVMe command begins in an entry of a ring with large entries.
constexpr size_t COMMAND_OFFSET = 48;

//! Runs whenever the processor has nothing else to do, and counts for how long: the kernel's own count goes by its
//! tick. What takes longer than two looks at the clock is something else, such as an interrupt.
class IdleCounter {
  public:
    IdleCounter() {
        void *shared = mmap(nullptr, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) {
            throw std::bad_alloc();
        }
        idle_ns_ = new (shared) std::atomic<uint64_t>(0);
        child_ = fork();
        if (child_ == 0) {
            const sched_param none = {};
            sched_setscheduler(0, SCHED_IDLE, &none);
            Count();
        }
    }
    ~IdleCounter() {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
        munmap(idle_ns_, PAGE_BYTES);
    }
    IdleCounter(const IdleCounter &) = delete;
    IdleCounter &operator=(const IdleCounter &) = delete;
    uint64_t IdleNs() const { return *idle_ns_; }

  private:
    static constexpr uint64_t LOOK_NS_MAX = 1000;

    [[noreturn]] void Count() const {
        for (uint64_t before = MonotonicNs();;) {
            const uint64_t now = MonotonicNs(), took = now - before;
            before = now;
            if (took < LOOK_NS_MAX) {
                idle_ns_->fetch_add(took, std::memory_order_relaxed);
            }
        }
    }

    std::atomic<uint64_t> *idle_ns_ = nullptr;
    pid_t child_ = -1;
};

//! What is not the engine's doing.
struct Pauses {
    uint64_t ns = 0, system_calls = 0;

    //! Long enough for the device to have answered.
    void Wait() {
        const uint64_t start = MonotonicNs();
        const timespec pause = {0, 300000};
        nanosleep(&pause, nullptr);
        ns += MonotonicNs() - start;
        system_calls++;
    }
};

//! Calls `step`, which returns how many commands it has completed, for a while. `polling`: without the time that it
//! spends waiting, which depends on the device; otherwise without the time in which the processor was idle.
void Measure(const std::string &engine, const std::string &name, const Pauses *polling,
             const std::function<uint64_t()> &step) {
    std::optional<IdleCounter> idle;
    if (!polling) {
        idle.emplace();
    }
    for (uint64_t done = 0; done < WARM_UP_COMMANDS;) {
        done += step();
    }
    const auto not_counted = [&] { return polling ? polling->ns : idle->IdleNs(); };
    uint64_t commands = 0, ns = 0;
    const uint64_t start = MonotonicNs(), before = not_counted();
    while (ns < NS_PER_CASE) {
        commands += step();
        ns = MonotonicNs() - start;
    }
    const double instructions =
        static_cast<double>(ns - (not_counted() - before)) / static_cast<double>(commands);
    // Afterwards: what counts them takes instructions of its own.
    const uint64_t pauses = polling ? polling->system_calls : 0;
    const DeviceEvents events;
    uint64_t counted = 0;
    while (counted < COUNTED_COMMANDS) {
        counted += step();
    }
    const DeviceEvents::Counts counts = events.Count();
    const uint64_t calls = counts.system_calls - (polling ? polling->system_calls - pauses : 0);
    std::printf("%s\t%s\t%.0f\t%.2f\t%.2f\n", engine.c_str(), name.c_str(), instructions,
                static_cast<double>(calls) / static_cast<double>(counted),
                static_cast<double>(counts.interrupts) / static_cast<double>(counted));
    std::fflush(stdout);
}

struct Shape {
    const char *name;
    uint32_t bytes, depth;
};
constexpr Shape SHAPES[] = {{"read 4 KiB, depth 1", 4096, 1},
                            {"read 4 KiB, depth 32", 4096, 32},
                            {"read 128 KiB, depth 8", 128 * 1024, 8},
                            {"read 256 KiB, depth 8", 256 * 1024, 8}};

//! Offsets that jump about.
class Places {
  public:
    explicit Places(uint32_t bytes) : bytes_(bytes) {}
    uint64_t Next() { return (number_++ * 7919) % (SPAN_BYTES / bytes_) * bytes_; }

  private:
    const uint32_t bytes_;
    uint64_t number_ = 0;
};

void ReadThroughEngine(Device &device, const std::string &engine, bool polling, const Shape &shape,
                       char *memory) {
    auto queue = device.CreateQueue(shape.depth, QueueUse::OWNED);
    if (queue->Depth() < shape.depth) {
        return; // one at a time
    }
    Places places(shape.bytes);
    std::vector<Command> commands(shape.depth);
    std::vector<Command *> idle, completed(shape.depth);
    for (uint32_t i = 0; i < shape.depth; i++) {
        commands[i].data = memory + uint64_t(i) * shape.bytes;
        commands[i].length = shape.bytes;
        idle.push_back(&commands[i]);
    }
    const auto reap = [&] {
        const uint32_t count = queue->Reap(completed.data(), shape.depth, true);
        for (uint32_t i = 0; i < count; i++) {
            if (completed[i]->result != shape.bytes) {
                throw std::runtime_error("a read failed");
            }
            idle.push_back(completed[i]);
        }
        return count;
    };
    Pauses pauses;
    Measure(engine, shape.name, polling ? &pauses : nullptr, [&]() -> uint64_t {
        for (; !idle.empty(); idle.pop_back()) {
            idle.back()->device_offset = places.Next();
            if (!queue->Submit(*idle.back())) {
                break; // until another one completes
            }
        }
        if (!polling) {
            return reap();
        }
        const size_t sent = shape.depth - idle.size();
        uint64_t count = queue->Reap(completed.data(), 0, false); // sends them
        for (pauses.Wait(); count < sent;) {
            count += reap();
        }
        return count;
    });
    while (idle.size() < shape.depth) {
        reap();
    }
}

void MeasureEngine(const std::string &target, const std::string &engine, bool polling) {
    const std::string name = engine + (polling ? ", polling" : "");
    DeviceOptions options;
    options.engine = engine == "vfio" ? "auto" : engine;
    options.polling = polling;
    const HugeMemory memory(DEPTH_MAX * 256 * KIB);
    std::memset(memory.Data(), 0, DEPTH_MAX * 256 * KIB);
    {
        auto device = OpenDevice(ResolveTarget(target), options);
        if (device->Caps().registered_memory &&
            !device->Register(memory.Data(), DEPTH_MAX * 256 * KIB, MemoryNeed::SPARE)) {
            throw std::runtime_error("memory cannot be registered");
        }
        for (const Shape &shape : SHAPES) {
            ReadThroughEngine(*device, name, polling, shape, memory.Data());
        }
        if (device->Caps().registered_memory) {
            device->Forget(memory.Data());
        }
    }
    if (polling) {
        return; // what follows waits for the device
    }
    BlockIoOptions io_options;
    io_options.reread_buffer_bytes = 0;
    BlockIo io(OpenDevice(ResolveTarget(target), options), io_options, target, std::make_shared<IoStats>());
    Places blocks(256 * KIB), pages(4096);
    Measure(name, "read 256 KiB, copied on vfio", nullptr, [&] {
        io.Read(blocks.Next(), memory.Data(), 256 * KIB);
        return 1;
    });
    Measure(name, "commit of 4 KiB (write, Flush)", nullptr, [&] {
        io.Write(pages.Next(), memory.Data(), 4096, PlacementClass::WAL);
        io.Flush();
        return 1;
    });
}

void Require(int result, const char *what) {
    if (result < 0) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(-result));
    }
}

//! Without rawduck: a ring, a registered descriptor, a registered buffer.
void MeasureFixedBuffers(const std::string &target, bool polling) {
    const int fd = open(target.c_str(), O_RDONLY | O_CLOEXEC);
    Require(fd < 0 ? -errno : 0, target.c_str());
    const HugeMemory memory(DEPTH_MAX * 256 * KIB);
    std::memset(memory.Data(), 0, DEPTH_MAX * 256 * KIB);
    for (const Shape &shape : SHAPES) {
        io_uring ring;
        const unsigned own = polling ? IORING_SETUP_IOPOLL : IORING_SETUP_DEFER_TASKRUN;
        Require(io_uring_queue_init(
                    64, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER | own),
                "io_uring_queue_init");
        const iovec buffer = {memory.Data(), DEPTH_MAX * 256 * KIB};
        Require(io_uring_register_buffers(&ring, &buffer, 1), "io_uring_register_buffers");
        Require(io_uring_register_files(&ring, &fd, 1), "io_uring_register_files");
        Places places(shape.bytes);
        std::vector<uint32_t> idle;
        for (uint32_t i = 0; i < shape.depth; i++) {
            idle.push_back(i);
        }
        const auto reap = [&]() -> uint64_t {
            Require(io_uring_submit_and_wait(&ring, 1), "io_uring_submit_and_wait");
            io_uring_cqe *completed[DEPTH_MAX];
            const unsigned count = io_uring_peek_batch_cqe(&ring, completed, DEPTH_MAX);
            for (unsigned i = 0; i < count; i++) {
                Require(completed[i]->res == 0 ? 0 : -EIO, "a read");
                idle.push_back(static_cast<uint32_t>(completed[i]->user_data));
            }
            io_uring_cq_advance(&ring, count);
            return count;
        };
        Pauses pauses;
        const char *const name = polling ? "fixed, polling" : "fixed";
        Measure(name, shape.name, polling ? &pauses : nullptr, [&] {
            for (; !idle.empty(); idle.pop_back()) {
                io_uring_sqe *entry = io_uring_get_sqe(&ring);
                std::memset(entry, 0, 2 * sizeof *entry);
                entry->opcode = IORING_OP_URING_CMD;
                entry->flags = IOSQE_FIXED_FILE;
                entry->cmd_op = NVME_URING_CMD_IO;
                entry->uring_cmd_flags = IORING_URING_CMD_FIXED;
                entry->user_data = idle.back();
                Command command;
                command.data = memory.Data() + uint64_t(idle.back()) * shape.bytes;
                command.length = shape.bytes;
                command.device_offset = places.Next();
                const nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, 1, 512);
                auto *sent =
                    reinterpret_cast<nvme_uring_cmd *>(reinterpret_cast<char *>(entry) + COMMAND_OFFSET);
                sent->opcode = transfer.opcode;
                sent->nsid = transfer.nsid;
                sent->addr = transfer.addr;
                sent->data_len = transfer.data_len;
                sent->cdw10 = transfer.cdw10;
                sent->cdw12 = transfer.cdw12;
            }
            if (!polling) {
                return reap();
            }
            Require(io_uring_submit(&ring), "io_uring_submit");
            uint64_t count = 0;
            for (pauses.Wait(); count < shape.depth;) {
                count += reap();
            }
            return count;
        });
        while (idle.size() < shape.depth) {
            reap();
        }
        io_uring_queue_exit(&ring);
    }
    close(fd);
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 3) {
        std::fprintf(stderr, "command_bench TARGET ENGINE [POLLING]: TARGET's contents are destroyed\n");
        return 2;
    }
    const bool polling = argc > 3 && std::strcmp(argv[3], "polling") == 0;
    try {
        if (std::strcmp(argv[2], "fixed") == 0) {
            MeasureFixedBuffers(argv[1], polling);
        } else {
            MeasureEngine(argv[1], argv[2], polling);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "command_bench: %s, %s: %s\n", argv[1], argv[2], error.what());
        return 1;
    }
    return 0;
}
