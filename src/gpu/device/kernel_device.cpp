#include "gpu/device/kernel_device.hpp"

#include "common/invariant.hpp"
#include "gpu/columns/kernels.hpp"
#include "gpu/kernels/arguments.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck::gpu {
namespace {

uint64_t Groups(uint64_t count) {
    return (count + COLUMN_GROUP - 1) / COLUMN_GROUP;
}

template <class T> T *At(const Memory &memory) {
    return reinterpret_cast<T *>(memory.Data());
}

const char *GatherKernel(uint64_t width) {
    switch (width) {
    case 1:
        return "gather_8";
    case 2:
        return "gather_16";
    case 4:
        return "gather_32";
    case 8:
        return "gather_64";
    default:
        return "gather_128";
    }
}

const char *ConvertKernel(Conversion conversion) {
    switch (conversion) {
    case Conversion::INT16_TO_INT32:
        return "convert_to_int32";
    case Conversion::TO_INT64:
        return "convert_to_int64";
    case Conversion::TO_FLOAT64:
        return "convert_to_float64";
    case Conversion::UUID_BYTES:
        return "convert_to_uuid";
    case Conversion::NONE:
        break;
    }
    RAWDUCK_INVARIANT(false, "nothing to convert");
    return nullptr;
}

StringArguments StringsOf(const uint64_t *device_offsets, const RowSelection &rows) {
    StringArguments arguments = {};
    arguments.offsets = reinterpret_cast<const u64 *>(device_offsets);
    arguments.rows = rows.device_rows;
    arguments.first = rows.first;
    arguments.count = rows.count;
    return arguments;
}

//! Enough to fill a link of PCIe 5 (docs/GPU.md), and few beside those that decode.
constexpr uint64_t PULL_GROUPS_MOST = 32;

} // namespace

void KernelDevice::Pull(const std::vector<CopiedPiece> &pieces, Beside beside) {
    for (size_t first = 0; first < pieces.size(); first += PULL_PIECES) {
        PullArguments arguments = {};
        arguments.count = static_cast<u32>(std::min<size_t>(pieces.size() - first, PULL_PIECES));
        uint64_t bytes = 0;
        for (u32 i = 0; i < arguments.count; i++) {
            const CopiedPiece &piece = pieces[first + i];
            arguments.pieces[i] = {piece.from, piece.device_to, piece.bytes};
            bytes += piece.bytes;
        }
        arguments.groups = static_cast<u32>(std::clamp<uint64_t>(bytes / PULL_PART, 1, PULL_GROUPS_MOST));
        Launch("pull_pieces", arguments.groups, &arguments, sizeof(arguments), beside);
    }
}

void KernelDevice::Decode(Phase phase, const std::vector<SegmentTask> &tasks,
                          const std::vector<GroupItem> &items, const std::vector<DecodeLaunch> &launches) {
    const Memory device_tasks = Upload(tasks), device_items = Upload(items);
    for (const DecodeLaunch &launch : launches) {
        const char *kernel = KernelName(launch.codec, launch.kind, phase);
        RAWDUCK_INVARIANT(kernel, "only what CanDecode names takes part in a phase");
        Run(kernel, launch.item_count,
            DecodeArguments{At<const SegmentTask>(device_tasks),
                            At<const GroupItem>(device_items) + launch.first_item});
    }
}

void KernelDevice::VerifyChecksums(const std::vector<ChecksumTask> &tasks) {
    const Memory device_tasks = Upload(tasks);
    const u32 parts = tasks.empty() ? 1 : ChecksumParts(tasks.front().byte_count);
    Run(CHECKSUM_KERNEL, tasks.size() * parts,
        ChecksumArguments{At<const ChecksumTask>(device_tasks), parts});
}

uint64_t KernelDevice::SumLengths(const uint32_t *device_lengths, uint64_t count, uint64_t *device_offsets) {
    if (count == 0) {
        Fill(reinterpret_cast<uint8_t *>(device_offsets), 0, sizeof(uint64_t));
        return 0;
    }
    const uint64_t groups = SumGroups(count);
    const Memory sums = Allocate((groups + 1) * sizeof(u64));
    const SumArguments arguments = {device_lengths, count, At<u64>(sums), device_offsets};
    Run("sum_groups_of_numbers", groups, arguments);
    Run("sum_group_starts", 1, arguments);
    Run("sum_offsets", groups, arguments);
    uint64_t all = 0;
    CopyOut(&all, sums.Data() + groups * sizeof(u64), sizeof(all));
    return all;
}

void KernelDevice::ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) {
    const uint64_t groups = SumGroups(count);
    const Memory sums = Allocate((groups + 1) * sizeof(u64));
    const SumArguments arguments = {device_bytes, count, At<u64>(sums), device_rows};
    Run("sum_groups_of_bytes", groups, arguments);
    Run("sum_group_starts", groups > 0 ? 1 : 0, arguments);
    Run("list_rows", groups, arguments);
}

void KernelDevice::Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                          uint8_t *device_to) {
    RAWDUCK_INVARIANT(rows.device_rows, "rows that are not listed are copied");
    Run(GatherKernel(width), Groups(rows.count),
        GatherArguments{device_from, rows.device_rows, rows.first, rows.count, device_to});
}

StringExtent KernelDevice::Fitting(const uint64_t *device_offsets, const RowSelection &rows,
                                   uint64_t byte_limit) {
    if (rows.count == 0) {
        return {};
    }
    StringArguments arguments = StringsOf(device_offsets, rows);
    arguments.byte_limit = byte_limit;
    Memory lengths, sums;
    if (rows.device_rows) {
        lengths = Allocate(rows.count * sizeof(u32));
        sums = Allocate((rows.count + 1) * sizeof(u64));
        arguments.lengths = At<u32>(lengths);
        arguments.to_offsets = At<u64>(sums);
        Run("string_lengths", Groups(rows.count), arguments);
        SumLengths(arguments.lengths, rows.count, At<uint64_t>(sums));
    }
    const Memory result = Allocate(sizeof(StringExtent));
    arguments.result = At<u64>(result);
    Run("string_fit", 1, arguments);
    StringExtent fitting;
    CopyOut(&fitting, result.Data(), sizeof(fitting));
    return fitting;
}

void KernelDevice::GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars,
                                 const RowSelection &rows, uint64_t bytes, int32_t *device_to,
                                 uint8_t *device_chars_to) {
    StringArguments arguments = StringsOf(device_offsets, rows);
    arguments.chars = device_chars;
    arguments.to = device_to;
    arguments.to_chars = device_chars_to;
    if (!rows.device_rows) {
        Run("string_offsets", Groups(rows.count), arguments);
        Run("string_all_characters", Groups(bytes), arguments);
        return;
    }
    const Memory lengths = Allocate(rows.count * sizeof(u32)),
                 sums = Allocate((rows.count + 1) * sizeof(u64));
    arguments.lengths = At<u32>(lengths);
    arguments.to_offsets = At<u64>(sums);
    Run("string_lengths", Groups(rows.count), arguments);
    SumLengths(arguments.lengths, rows.count, At<uint64_t>(sums));
    Run("string_offsets", Groups(rows.count), arguments);
    Run("string_listed_characters", Groups(rows.count), arguments);
}

void KernelDevice::PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) {
    Run("pack_bits", Groups(count), BitArguments{device_bytes, count, device_bits, nullptr});
}

uint64_t KernelDevice::PackBitsAndCount(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) {
    const Memory zeros = Allocate(sizeof(u64));
    Fill(zeros.Data(), 0, zeros.Size());
    Run("pack_bits", Groups(count), BitArguments{device_bytes, count, device_bits, At<u64>(zeros)});
    uint64_t found = 0;
    CopyOut(&found, zeros.Data(), sizeof(found));
    return found;
}

void KernelDevice::Convert(Conversion conversion, const uint8_t *device_from, uint64_t width, uint64_t count,
                           uint32_t scale, uint8_t *device_to) {
    Run(ConvertKernel(conversion), Groups(count),
        ConvertArguments{device_from, width, count, scale, device_to});
}

void KernelDevice::ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value,
                                uint64_t width, uint8_t *device_values) {
    RAWDUCK_INVARIANT(width <= sizeof(u64), "numbers that DLPack takes have at most 64 bits");
    ReplaceArguments arguments = {device_valid, count, 0, width, device_values};
    std::memcpy(&arguments.value, value, width);
    Run("replace_nulls", Groups(count), arguments);
}

} // namespace rawduck::gpu
