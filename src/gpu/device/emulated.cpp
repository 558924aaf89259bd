#include "gpu/device/emulated.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace rawduck::gpu {
namespace {

constexpr uint64_t ALIGNMENT = 64;

uint64_t RowAt(const RowSelection &rows, uint64_t index) {
    return rows.device_rows ? rows.device_rows[rows.first + index] : rows.first + index;
}

int64_t SignedValue(const uint8_t *from, uint64_t width) {
    int64_t value = 0;
    std::memcpy(&value, from, width);
    const int unused = static_cast<int>(64 - 8 * width);
    return static_cast<int64_t>(static_cast<uint64_t>(value) << unused) >> unused;
}

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

//! A decimal as the nearest double, ties to even, which is what DuckDB's cast gives.
double DecimalToDouble(Int128 value, uint32_t scale) {
    constexpr UInt128 MOST_EXACT = 1ull << 53;
    constexpr uint32_t MOST_EXACT_SCALE = 22;
    UInt128 power = 1;
    for (uint32_t i = 0; i < scale; i++) {
        power *= 10;
    }
    const UInt128 size = value < 0 ? -static_cast<UInt128>(value) : static_cast<UInt128>(value);
    double result;
    if (size <= MOST_EXACT && scale <= MOST_EXACT_SCALE) {
        result = static_cast<double>(size) / static_cast<double>(power);
    } else {
        // Binary long division to at least two bits more than a double has, then one rounding.
        UInt128 quotient = size / power, rest = size % power;
        int exponent = 0;
        for (; quotient < 4 * MOST_EXACT; exponent--) {
            rest *= 2;
            quotient = quotient * 2 + (rest >= power ? 1 : 0);
            rest -= rest >= power ? power : 0;
        }
        UInt128 dropped = rest != 0 ? 1 : 0; // whether anything is below, and above that bit what is dropped
        UInt128 half = 1;
        for (; quotient >= MOST_EXACT; exponent++, half *= 2) {
            dropped += (quotient & 1) * half * 2;
            quotient /= 2;
        }
        quotient += dropped > half || (dropped == half && (quotient & 1)) ? 1 : 0;
        result = std::ldexp(static_cast<double>(quotient), exponent);
    }
    return value < 0 ? -result : result;
}

Int128 WideValue(const uint8_t *from, uint64_t width) {
    Int128 value = 0;
    if (width == sizeof(value)) {
        std::memcpy(&value, from, sizeof(value));
        return value;
    }
    return SignedValue(from, width);
}

//! DuckDB keeps the first bit of a UUID inverted, so that it can compare them as signed numbers.
void UuidBytes(const uint8_t *from, uint8_t *to) {
    std::reverse_copy(from, from + 16, to);
    to[0] ^= 0x80;
}

} // namespace

Memory EmulatedDevice::Allocate(uint64_t bytes) {
    const uint64_t size = std::max(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    auto *data = static_cast<uint8_t *>(std::aligned_alloc(ALIGNMENT, size));
    if (!data) {
        throw std::bad_alloc();
    }
    return {std::shared_ptr<uint8_t>(data, &std::free), bytes};
}

void EmulatedDevice::CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) {
    if (bytes > 0) {
        std::memcpy(device_to, from, bytes);
    }
}

void EmulatedDevice::CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) {
    if (bytes > 0) {
        std::memcpy(to, device_from, bytes);
    }
}

void EmulatedDevice::Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) {
    std::memset(device_to, byte, bytes);
}

void EmulatedDevice::Decode(Codec codec, Kind kind, Phase phase, const std::vector<SegmentTask> &tasks,
                            const std::vector<GroupItem> &items) {
    LaunchOnHost(codec, kind, phase, tasks.data(), items.data(), items.size());
}

void EmulatedDevice::VerifyChecksums(const std::vector<ChecksumTask> &tasks) {
    LaunchChecksumsOnHost(tasks.data(), tasks.size());
}

uint64_t EmulatedDevice::SumLengths(const uint32_t *device_lengths, uint64_t count,
                                    uint64_t *device_offsets) {
    device_offsets[0] = 0;
    for (uint64_t i = 0; i < count; i++) {
        device_offsets[i + 1] = device_offsets[i] + device_lengths[i];
    }
    return device_offsets[count];
}

uint64_t EmulatedDevice::ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) {
    uint64_t listed = 0;
    for (uint64_t row = 0; row < count; row++) {
        device_rows[listed] = static_cast<uint32_t>(row);
        listed += device_bytes[row];
    }
    return listed;
}

void EmulatedDevice::Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                            uint8_t *device_to) {
    if (!rows.device_rows) {
        CopyIn(device_to, device_from + rows.first * width, rows.count * width);
        return;
    }
    for (uint64_t i = 0; i < rows.count; i++) {
        std::memcpy(device_to + i * width, device_from + RowAt(rows, i) * width, width);
    }
}

StringExtent EmulatedDevice::Fitting(const uint64_t *device_offsets, const RowSelection &rows,
                                     uint64_t byte_limit) {
    StringExtent fitting;
    for (; fitting.rows < rows.count; fitting.rows++) {
        const uint64_t row = RowAt(rows, fitting.rows);
        const uint64_t length = device_offsets[row + 1] - device_offsets[row];
        if (length > byte_limit - fitting.bytes) {
            break;
        }
        fitting.bytes += length;
    }
    return fitting;
}

void EmulatedDevice::GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars,
                                   const RowSelection &rows, int32_t *device_to, uint8_t *device_chars_to) {
    for (uint64_t i = 0; i < rows.count; i++) {
        const uint64_t row = RowAt(rows, i);
        const uint64_t length = device_offsets[row + 1] - device_offsets[row];
        CopyIn(device_chars_to + device_to[i], device_chars + device_offsets[row], length);
        device_to[i + 1] = device_to[i] + static_cast<int32_t>(length);
    }
}

uint64_t EmulatedDevice::PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) {
    std::memset(device_bits, 0, (count + 7) / 8);
    uint64_t zeros = 0;
    for (uint64_t i = 0; i < count; i++) {
        device_bits[i / 8] = static_cast<uint8_t>(device_bits[i / 8] | device_bytes[i] << (i % 8));
        zeros += 1 - device_bytes[i];
    }
    return zeros;
}

void EmulatedDevice::Convert(Conversion conversion, const uint8_t *device_from, uint64_t width,
                             uint64_t count, uint32_t scale, uint8_t *device_to) {
    RAWDUCK_INVARIANT(conversion != Conversion::NONE, "nothing to convert");
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *from = device_from + i * width;
        if (conversion == Conversion::UUID_BYTES) {
            UuidBytes(from, device_to + i * 16);
        } else if (conversion == Conversion::TO_FLOAT64) {
            reinterpret_cast<double *>(device_to)[i] = DecimalToDouble(WideValue(from, width), scale);
        } else if (conversion == Conversion::TO_INT64) {
            reinterpret_cast<int64_t *>(device_to)[i] = SignedValue(from, width);
        } else {
            reinterpret_cast<int32_t *>(device_to)[i] = static_cast<int32_t>(SignedValue(from, width));
        }
    }
}

void EmulatedDevice::ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value,
                                  uint64_t width, uint8_t *device_values) {
    for (uint64_t i = 0; i < count; i++) {
        if (!device_valid[i]) {
            std::memcpy(device_values + i * width, value, width);
        }
    }
}

std::shared_ptr<Device> OpenDevice(const std::string &name) {
    const char *variable = std::getenv("RAWDUCK_GPU");
    const std::string wanted = !name.empty() ? name : variable ? variable : "";
    if (wanted == "emulated") {
        return std::make_shared<EmulatedDevice>();
    }
    throw rawduck::Error(
        ErrorCode::UNSUPPORTED,
        (wanted.empty() ? "no device was named" : "there is no device \"" + wanted + "\"") +
            std::string(": this version of rawduck has no code for CUDA; pass device=\"emulated\", or set "
                        "RAWDUCK_GPU=emulated, to decode in host memory by the same kernels"));
}

} // namespace rawduck::gpu
