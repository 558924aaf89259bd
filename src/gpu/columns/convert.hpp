#pragma once
//! Values as DuckDB stores them, to those of a batch.
#include "gpu/columns/gather.hpp"

namespace rawduck::gpu {

#ifndef __CUDACC__
__extension__ // not of the C++ standard
#endif
    typedef __int128 Int128;
#ifndef __CUDACC__
__extension__
#endif
    typedef unsigned __int128 UInt128;

struct ConvertArguments {
    const u8 *from;
    u64 width; //!< of a value in `from`
    u64 count;
    u32 scale; //!< the power of ten that ToFloat64 divides by
    void *to;
};

GPU_FUNCTION Int128 StoredNumber(const u8 *from, u64 width) {
    switch (width) {
    case 1:
        return static_cast<signed char>(*from);
    case 2:
        return *reinterpret_cast<const short *>(from);
    case 4:
        return *reinterpret_cast<const i32 *>(from);
    case 8:
        return *reinterpret_cast<const i64 *>(from);
    default: {
        const u64 *halves = reinterpret_cast<const u64 *>(from);
        return static_cast<Int128>(static_cast<UInt128>(halves[1]) << 64 | halves[0]);
    }
    }
}

//! 2^exponent, for exponents of normal doubles.
GPU_FUNCTION double PowerOfTwo(int exponent) {
    const u64 bits = static_cast<u64>(1023 + exponent) << 52;
#ifdef __CUDACC__
    return __longlong_as_double(static_cast<i64>(bits));
#else
    double power;
    __builtin_memcpy(&power, &bits, sizeof(power));
    return power;
#endif
}

//! Binary long division to at least two bits more than a double has, then one rounding to the nearest, ties to even.
GPU_FUNCTION double Quotient(UInt128 number, UInt128 divisor) {
    constexpr u64 MANTISSA = 1ull << 53;
    UInt128 quotient = number / divisor, rest = number % divisor;
    int exponent = 0;
    for (; quotient < 4 * MANTISSA; exponent--) {
        rest *= 2;
        quotient = quotient * 2 + (rest >= divisor ? 1 : 0);
        rest -= rest >= divisor ? divisor : 0;
    }
    UInt128 dropped = rest != 0 ? 1 : 0; // whether anything is below, and above that bit what is dropped
    UInt128 half = 1;
    for (; quotient >= MANTISSA; exponent++, half *= 2) {
        dropped += (quotient & 1) * half * 2;
        quotient /= 2;
    }
    quotient += dropped > half || (dropped == half && (quotient & 1)) ? 1 : 0;
    return static_cast<double>(static_cast<u64>(quotient)) * PowerOfTwo(exponent);
}

//! A decimal as the nearest double, which is what DuckDB's cast gives.
GPU_FUNCTION double DecimalToDouble(Int128 value, u32 scale) {
    constexpr u64 MOST_EXACT = 1ull << 53;
    constexpr u32 MOST_EXACT_SCALE = 22;
    UInt128 power = 1;
    double exact_power = 1; // exact up to MOST_EXACT_SCALE
    for (u32 i = 0; i < scale; i++) {
        power *= 10;
        exact_power *= 10;
    }
    const UInt128 size = value < 0 ? -static_cast<UInt128>(value) : static_cast<UInt128>(value);
    double result = 0;
    if (size == 0) {
        return 0; // long division would not end
    }
    if (size <= MOST_EXACT && scale <= MOST_EXACT_SCALE) {
        result = static_cast<double>(static_cast<u64>(size)) / exact_power;
    } else {
        result = Quotient(size, power);
    }
    return value < 0 ? -result : result;
}

struct ToInt32 {
    using Value = i32;
    static GPU_FUNCTION i32 Convert(const ConvertArguments &arguments, const u8 *from) {
        return static_cast<i32>(StoredNumber(from, arguments.width));
    }
};

struct ToInt64 {
    using Value = i64;
    static GPU_FUNCTION i64 Convert(const ConvertArguments &arguments, const u8 *from) {
        return static_cast<i64>(StoredNumber(from, arguments.width));
    }
};

struct ToFloat64 {
    using Value = double;
    static GPU_FUNCTION double Convert(const ConvertArguments &arguments, const u8 *from) {
        return DecimalToDouble(StoredNumber(from, arguments.width), arguments.scale);
    }
};

//! The 16 bytes in the order in which a UUID is written. DuckDB keeps the first bit inverted, so that it can compare them
//! as signed numbers.
struct ToUuid {
    using Value = U128;
    static GPU_FUNCTION u64 Reversed(u64 number) {
        u64 reversed = 0;
        for (u32 i = 0; i < 8; i++) {
            reversed = reversed << 8 | (number >> (8 * i) & 0xff);
        }
        return reversed;
    }

    static GPU_FUNCTION U128 Convert(const ConvertArguments &, const u8 *from) {
        const u64 *halves = reinterpret_cast<const u64 *>(from);
        return {Reversed(halves[1]) ^ 0x80, Reversed(halves[0])};
    }
};

template <class CONVERSION> struct Converted {
    using Arguments = ConvertArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        auto *to = static_cast<typename CONVERSION::Value *>(arguments.to);
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i;
            to[index] = CONVERSION::Convert(arguments, arguments.from + index * arguments.width);
        }
    }
};

} // namespace rawduck::gpu
