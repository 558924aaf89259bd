#include "common/text/size.hpp"

#include "common/error.hpp"
#include "common/units.hpp"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <locale.h>

namespace rawduck {
namespace {

struct SizeUnit {
    const char *name;
    double bytes;
};
constexpr SizeUnit SIZE_UNITS[] = {{"", 1},      {"b", 1},          {"byte", 1},         {"bytes", 1},
                                   {"k", KIB},   {"kib", KIB},      {"kb", 1e3},         {"m", MIB},
                                   {"mib", MIB}, {"mb", 1e6},       {"g", GIB},          {"gib", GIB},
                                   {"gb", 1e9},  {"t", 1024 * GIB}, {"tib", 1024 * GIB}, {"tb", 1e12}};
//! 2^63: beyond it neither DuckDB nor the kernel has offsets.
constexpr double SIZE_LIMIT = 9223372036854775808.0;

//! Numbers have a point in whatever locale the process is. Made once.
locale_t WithAPoint() {
    static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
    return locale;
}

} // namespace

uint64_t ParseSize(const std::string &text, const std::string &what) {
    Error invalid(ErrorCode::INVALID,
                  what + ": \"" + text + "\" is not a size; write one such as 8G, 512 MiB or 4096");
    size_t position = text.find_first_not_of(' ');
    if (position == std::string::npos || (!std::isdigit(static_cast<unsigned char>(text[position])))) {
        throw invalid;
    }
    char *end = nullptr;
    double number = strtod_l(text.c_str() + position, &end, WithAPoint());
    std::string unit;
    for (const char *const last = text.c_str() + text.size(); end != last; end++) {
        if (*end != ' ') {
            unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
        }
    }
    for (auto &candidate : SIZE_UNITS) {
        if (unit == candidate.name) {
            double bytes = number * candidate.bytes;
            if (!(bytes < SIZE_LIMIT) || bytes != std::floor(bytes)) {
                throw invalid;
            }
            return static_cast<uint64_t>(bytes);
        }
    }
    throw invalid;
}

std::string SizeText(uint64_t bytes) {
    constexpr struct {
        uint64_t bytes;
        const char *name;
    } units[] = {{1024 * GIB, "TiB"}, {GIB, "GiB"}, {MIB, "MiB"}, {KIB, "KiB"}};
    for (auto &unit : units) {
        if (bytes >= unit.bytes && bytes % unit.bytes == 0) {
            return std::to_string(bytes / unit.bytes) + " " + unit.name;
        }
    }
    return std::to_string(bytes) + " bytes";
}

} // namespace rawduck
