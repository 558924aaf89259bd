#include "common/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rawduck {

namespace {

constexpr uint32_t POLYNOMIAL = 0x82F63B78; // Castagnoli, reflected

std::array<uint32_t, 256> MakeTable() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1) ? POLYNOMIAL : 0);
        }
        table[byte] = value;
    }
    return table;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cHardware(uint32_t crc, const void *data, size_t length) {
    auto bytes = static_cast<const uint8_t *>(data);
    uint64_t value = ~crc;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        value = __builtin_ia32_crc32di(value, word);
    }
    for (; length > 0; length--, bytes++) {
        value = __builtin_ia32_crc32qi(static_cast<uint32_t>(value), *bytes);
    }
    return ~static_cast<uint32_t>(value);
}
bool HaveHardware() {
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
// In words of the assembler: compilers have the instruction under names of their own, and not in builds for every
// processor of the architecture.
uint32_t Crc32cHardware(uint32_t crc, const void *data, size_t length) {
    auto bytes = static_cast<const uint8_t *>(data);
    uint32_t value = ~crc;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(value) : "r"(word));
    }
    for (; length > 0; length--, bytes++) {
        asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
            : "+r"(value)
            : "r"(static_cast<uint32_t>(*bytes)));
    }
    return ~value;
}
bool HaveHardware() {
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
uint32_t Crc32cHardware(uint32_t crc, const void *data, size_t length) {
    return Crc32cPortable(crc, data, length);
}
bool HaveHardware() {
    return false;
}
#endif

} // namespace

uint32_t Crc32cPortable(uint32_t crc, const void *data, size_t length) {
    static const std::array<uint32_t, 256> table = MakeTable();
    auto bytes = static_cast<const uint8_t *>(data);
    uint32_t value = ~crc;
    for (size_t i = 0; i < length; i++) {
        value = (value >> 8) ^ table[(value ^ bytes[i]) & 0xFF];
    }
    return ~value;
}

bool Crc32cUsesInstruction() {
    static const bool hardware = HaveHardware();
    return hardware;
}

uint32_t Crc32c(uint32_t crc, const void *data, size_t length) {
    return Crc32cUsesInstruction() ? Crc32cHardware(crc, data, length) : Crc32cPortable(crc, data, length);
}

} // namespace rawduck
