//! What reading a file on a volume costs, on a volume in memory, where no device is waited for: processor time, and
//! how often threads sleep because another one holds a lock. `read_bench [threads [bytes [reads]]]` measures one case
//! alone, as for a profiler; without arguments it prints a table.
#include "io/device/memory_device.hpp"
#include "volume/registry.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

using namespace rawduck;

namespace {

constexpr uint64_t FILE_BYTES = 256 * MIB;
constexpr const char *NAME = "read_bench";

struct Case {
    uint64_t threads, bytes, reads;
};

struct Cost {
    double cpu_ns;
    uint64_t sleeps;
};

Cost Used() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto ns = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
    };
    return {ns(usage.ru_utime) + ns(usage.ru_stime), static_cast<uint64_t>(usage.ru_nvcsw)};
}

void ReadAtRandom(OpenFile &file, const Case &wanted, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<char> memory(wanted.bytes + PAGE_BYTES);
    char *const data = memory.data() + PAGE_BYTES - reinterpret_cast<uintptr_t>(memory.data()) % PAGE_BYTES;
    for (uint64_t i = 0; i < wanted.reads / wanted.threads; i++) {
        file.Read(data, wanted.bytes, random() % (FILE_BYTES / wanted.bytes) * wanted.bytes);
    }
}

void Measure(OpenFile &file, const Case &wanted) {
    const Cost before = Used();
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < wanted.threads; i++) {
        threads.emplace_back([&file, &wanted, i] { ReadAtRandom(file, wanted, i); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const Cost after = Used();
    const auto reads = static_cast<double>(wanted.reads / wanted.threads * wanted.threads);
    printf("%8lu %10lu %14.0f %18.3f\n", wanted.threads, wanted.bytes, (after.cpu_ns - before.cpu_ns) / reads,
           static_cast<double>(after.sleeps - before.sleeps) / reads * 1000);
}

} // namespace

int main(int count, char **arguments) {
    const std::string target = std::string("memory:") + NAME;
    FormatOptions options;
    options.size_bytes = 2 * FILE_BYTES;
    Volume::Format(target, options);
    {
        VolumePin volume = PinVolume(target, MountOptions());
        OpenMode mode;
        mode.write = mode.create = true;
        mode.kind = FileKind::DATABASE;
        auto file = volume->Open("read.duckdb", mode);
        const std::string piece(MIB, 'x');
        for (uint64_t offset = 0; offset < FILE_BYTES; offset += MIB) {
            file->Write(piece.data(), MIB, offset);
        }
        file->Sync();
        printf("%8s %10s %14s %18s\n", "threads", "bytes", "CPU ns a read", "sleeps, 1000 reads");
        const auto argument = [&](int index, uint64_t otherwise) {
            return count > index ? strtoull(arguments[index], nullptr, 10) : otherwise;
        };
        if (count > 1) {
            Measure(*file, {argument(1, 1), argument(2, 4 * KIB), argument(3, 100000)});
        }
        for (const uint64_t bytes : {4 * KIB, 16 * KIB, 256 * KIB}) {
            for (const uint64_t threads : {1, 2, 16, 64}) {
                if (count == 1) {
                    Measure(*file, {threads, bytes, 2 * GIB / (bytes + 16 * KIB)});
                }
            }
        }
        file->Close();
    }
    DropMemoryTarget(NAME);
    return 0;
}
