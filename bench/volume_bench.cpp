//! What the volume itself costs, on volumes in memory: mounting and allocating, up to 16 TiB with 10,000
//! files and 100,000 extents; looking up; and a file that is overwritten at random until it lies in 100,000
//! pieces. `volume_bench trees` measures the metadata of format 2 instead.
#include "io/device/memory_device.hpp"
#include "tree_rows.hpp"
#include "volume/file/extent_map.hpp"
#include "volume/registry.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

using namespace rawduck;

namespace {

constexpr uint64_t FRAGMENTED_BYTES = 512 * MIB;

struct Shape {
    uint64_t capacity;
    uint64_t files;
    uint64_t extents_per_file;
};

double MsSince(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

//! Files grow in turn, one unit at a time, and are closed in between, so that every piece is an extent of its
//! own. Returns the milliseconds of each write with its allocation, sync and record.
double FillMsPerExtent(const std::string &target, const Shape &shape) {
    VolumePin volume = PinVolume(target, MountOptions());
    const std::string unit(ALLOCATION_UNIT_BYTES, 'x');
    OpenMode mode;
    mode.write = mode.create = true;
    mode.kind = FileKind::DATABASE;
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t round = 0; round < shape.extents_per_file; round++) {
        for (uint64_t i = 0; i < shape.files; i++) {
            auto file = volume->Open("directory/file" + std::to_string(i) + ".duckdb", mode);
            file->Write(unit.data(), unit.size(), round * ALLOCATION_UNIT_BYTES);
            file->Close();
        }
    }
    return MsSince(begin) / static_cast<double>(shape.files * shape.extents_per_file);
}

double MedianMountMs(const std::string &target) {
    std::vector<double> times;
    for (int i = 0; i < 9; i++) {
        times.push_back(PinVolume(target, MountOptions())->Info().mount_ms);
    }
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
}

//! Nanoseconds to find one byte of a file with this many extents.
double LookupNs(uint64_t extents) {
    ExtentMap map;
    for (uint64_t i = 0; i < extents; i++) {
        map.Append(AllocationUnit{i * 600}, 256);
    }
    std::mt19937_64 random(1);
    uint64_t sum = 0, contiguous = 0;
    constexpr int LOOKUPS = 2000000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < LOOKUPS; i++) {
        sum += map.Locate(random() % (extents * 256) * ALLOCATION_UNIT_BYTES, contiguous);
    }
    const double ns = MsSince(begin) * 1e6 / LOOKUPS;
    return sum == 0 ? 0 : ns; // the sum is used, so that the loop stays
}

//! Writes, or reads, pieces at random places. Returns microseconds for each; syncs, which come after every
//! hundredth write as in a checkpoint, are not in it.
double PieceUs(OpenFile &file, std::mt19937_64 &random, uint64_t length, int count, bool write) {
    std::string piece(length, 'y');
    double ms = 0;
    for (int i = 0; i < count; i++) {
        const uint64_t offset = random() % (FRAGMENTED_BYTES / length) * length;
        const auto begin = std::chrono::steady_clock::now();
        write ? file.Write(piece.data(), length, offset) : (void)file.Read(&piece[0], length, offset);
        ms += MsSince(begin);
        if (write && i % 100 == 99) {
            file.Sync();
        }
    }
    return ms * 1e3 / count;
}

void PrintFragmented() {
    const std::string target = "memory:fragmented";
    FormatOptions options;
    options.size_bytes = 2 * GIB;
    Volume::Format(target, options);
    {
        VolumePin volume = PinVolume(target, MountOptions());
        OpenMode mode;
        mode.write = mode.create = true;
        mode.kind = FileKind::DATABASE;
        auto file = volume->Open("fragmented.duckdb", mode);
        const std::string zeros(MIB, '0');
        for (uint64_t offset = 0; offset < FRAGMENTED_BYTES; offset += MIB) {
            file->Write(zeros.data(), MIB, offset);
        }
        file->Sync();
        std::mt19937_64 random(1);
        printf("\n%12s %12s %14s %12s %14s\n", "extents", "write 4K us", "write 256K us", "read 4K us",
               "read 256K us");
        for (const int overwrites : {0, 10000, 100000}) {
            PieceUs(*file, random, ALLOCATION_UNIT_BYTES, overwrites, true);
            const size_t extents = file->Info().extents.size();
            const double write_unit = PieceUs(*file, random, ALLOCATION_UNIT_BYTES, 1000, true);
            const double read_unit = PieceUs(*file, random, ALLOCATION_UNIT_BYTES, 1000, false);
            const double read_block = PieceUs(*file, random, 256 * KIB, 1000, false);
            const double write_block = PieceUs(*file, random, 256 * KIB, 100, true);
            printf("%12zu %12.1f %14.1f %12.1f %14.1f\n", extents, write_unit, write_block, read_unit,
                   read_block);
        }
        file->Close();
    }
    DropMemoryTarget("fragmented");
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && std::string(argv[1]) == "trees") {
        PrintTreeRows();
        return 0;
    }
    const Shape shapes[] = {
        {64 * MIB, 10, 1}, {8 * GIB, 100, 10}, {1024 * GIB, 1000, 10}, {16 * 1024 * GIB, 10000, 10}};
    printf("%12s %8s %9s %10s %12s %12s\n", "capacity GiB", "files", "extents", "mount ms", "write ms",
           "metadata MiB");
    int number = 0;
    for (const Shape &shape : shapes) {
        const std::string target = "memory:bench" + std::to_string(number++);
        FormatOptions options;
        options.size_bytes = shape.capacity;
        Volume::Format(target, options);
        const double write_ms = FillMsPerExtent(target, shape);
        const double mount_ms = MedianMountMs(target);
        const VolumeInfo info = PinVolume(target, MountOptions())->Info();
        printf("%12.2f %8lu %9lu %10.2f %12.4f %12.1f\n", static_cast<double>(info.capacity_bytes) / GIB,
               info.files, info.extents, mount_ms, write_ms, static_cast<double>(info.metadata_bytes) / MIB);
        DropMemoryTarget(target.substr(7));
    }
    printf("\n%12s %10s\n", "extents", "lookup ns");
    for (uint64_t extents : {1, 10, 100, 1000, 10000, 100000}) {
        printf("%12lu %10.1f\n", extents, LookupNs(extents));
    }
    PrintFragmented();
    return 0;
}
