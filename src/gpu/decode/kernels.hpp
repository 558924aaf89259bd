#pragma once
//! Which kernels there are: a name, for which codec, kind and phase, and what decodes.
#include "gpu/decode/bitpacking.hpp"
#include "gpu/decode/checksum.hpp"
#include "gpu/decode/constant.hpp"
#include "gpu/decode/uncompressed.hpp"

namespace rawduck::gpu {

//! A kernel for each kind of fixed width. NAME, CODEC, DECODER: of DECODER<Number<T>> or DECODER<Boolean>.
#define GPU_FIXED_WIDTH_KERNELS(X, NAME, CODEC, DECODER)                                                     \
    X(NAME##_bool, CODEC, BOOL, VALUES, DECODER<Boolean>, Values)                                            \
    X(NAME##_8, CODEC, INT8, VALUES, DECODER<Number<u8>>, Values)                                            \
    X(NAME##_16, CODEC, INT16, VALUES, DECODER<Number<u16>>, Values)                                         \
    X(NAME##_32, CODEC, INT32, VALUES, DECODER<Number<u32>>, Values)                                         \
    X(NAME##_64, CODEC, INT64, VALUES, DECODER<Number<u64>>, Values)                                         \
    X(NAME##_128, CODEC, INT128, VALUES, DECODER<Number<U128>>, Values)

//! X(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)
#define GPU_KERNELS(X)                                                                                       \
    GPU_FIXED_WIDTH_KERNELS(X, constant, CONSTANT, Constant)                                                 \
    GPU_FIXED_WIDTH_KERNELS(X, uncompressed, UNCOMPRESSED, Uncompressed)                                     \
    GPU_FIXED_WIDTH_KERNELS(X, bitpacking, BITPACKING, BitPacking)                                           \
    X(uncompressed_validity, UNCOMPRESSED, VALIDITY, VALUES, UncompressedValidity, Values)                   \
    X(uncompressed_string_lengths, UNCOMPRESSED, STRING, VALUES, UncompressedStrings, Values)                \
    X(uncompressed_strings, UNCOMPRESSED, STRING, BYTES, UncompressedStrings, Characters)

//! The kind whose kernels decode this one: floats that are stored as they are, and validity that is constant, are but
//! numbers.
GPU_FUNCTION Kind KernelKind(Codec codec, Kind kind) {
    if (codec == Codec::ALP || codec == Codec::ALPRD) {
        return kind;
    }
    switch (kind) {
    case Kind::FLOAT32:
        return Kind::INT32;
    case Kind::FLOAT64:
        return Kind::INT64;
    case Kind::VALIDITY:
        return codec == Codec::CONSTANT ? Kind::INT8 : kind;
    default:
        return kind;
    }
}

} // namespace rawduck::gpu
