//! What the processor does for a command, by engine: `command_bench TARGET ENGINE [POLLING]` in a guest whose clock
//! counts instructions (test/nvme/run.sh instructions), so that nanoseconds are instructions. Elsewhere they are
//! what they are. Prints a line per case: engine, case, count for each command, of all processors and all that runs.
//!
//! ENGINE is one of rawduck's, or "fixed": io_uring_cmd with buffers that were registered with the ring, which is
//! the least that the kernel's driver can do. Into registered memory where the engine has a use for it.
#include "common/clock.hpp"
#include "common/memory/huge_memory.hpp"
#include "io/block_io.hpp"
#include "io/device/nvme_device.hpp"
#include "io/open_device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <liburing.h>
#include <stdexcept>
#include <unistd.h>

using namespace rawduck;

namespace {

constexpr uint64_t NS_PER_CASE = 300000000, WARM_UP_COMMANDS = 200;
constexpr uint64_t SPAN_BYTES = 64 * MIB;
constexpr uint32_t DEPTH_MAX = 32;
//! Where the NVMe command begins in an entry of a ring with large entries.
constexpr size_t COMMAND_OFFSET = 48;

//! Of all processors: the kernel tells how long they had nothing to do.
uint64_t BusyNs() {
    std::ifstream stream("/proc/uptime");
    double up = 0, idle = 0;
    stream >> up >> idle;
    const double processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    const double elapsed = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
    return static_cast<uint64_t>((elapsed * processors - idle) * 1e9);
}

//! Calls `step`, which returns how many commands it has completed, for a while.
void Measure(const std::string &engine, const std::string &name, const std::function<uint64_t()> &step) {
    for (uint64_t done = 0; done < WARM_UP_COMMANDS;) {
        done += step();
    }
    uint64_t commands = 0;
    const uint64_t start = MonotonicNs(), busy = BusyNs();
    while (MonotonicNs() - start < NS_PER_CASE) {
        commands += step();
    }
    std::printf("%s\t%s\t%.0f\n", engine.c_str(), name.c_str(),
                static_cast<double>(BusyNs() - busy) / static_cast<double>(commands));
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

void ReadThroughEngine(Device &device, const std::string &engine, const Shape &shape, char *memory) {
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
    Measure(engine, shape.name, [&]() -> uint64_t {
        for (; !idle.empty(); idle.pop_back()) {
            idle.back()->device_offset = places.Next();
            queue->Submit(*idle.back());
        }
        return reap();
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
            ReadThroughEngine(*device, name, shape, memory.Data());
        }
        if (device->Caps().registered_memory) {
            device->Forget(memory.Data());
        }
    }
    BlockIoOptions io_options;
    io_options.reread_buffer_bytes = 0;
    BlockIo io(OpenDevice(ResolveTarget(target), options), io_options, target, std::make_shared<IoStats>());
    Places blocks(256 * KIB), pages(4096);
    Measure(name, "read 256 KiB to DuckDB's memory", [&] {
        io.Read(blocks.Next(), memory.Data(), 256 * KIB);
        return 1;
    });
    Measure(name, "commit of 4 KiB (write, Flush)", [&] {
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
        Measure(polling ? "fixed, polling" : "fixed", shape.name, [&] {
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
            return reap();
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
