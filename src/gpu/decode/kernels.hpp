#pragma once
//! Which kernels there are: a name, for which codec, kind and phase, and what decodes.
#include "gpu/decode/alp.hpp"
#include "gpu/decode/bitpacking.hpp"
#include "gpu/decode/checksum.hpp"
#include "gpu/decode/constant.hpp"
#include "gpu/decode/dict_fsst.hpp"
#include "gpu/decode/rle.hpp"
#include "gpu/decode/roaring.hpp"
#include "gpu/decode/uncompressed.hpp"

namespace rawduck::gpu {

//! A kernel for each kind of fixed width, of DECODER<Number<T>> or DECODER<Boolean>.
#define GPU_FIXED_WIDTH_KERNELS(X, NAME, CODEC, PHASE, DECODER, FUNCTION)                                    \
    X(NAME##_bool, CODEC, BOOL, PHASE, DECODER<Boolean>, FUNCTION)                                           \
    X(NAME##_8, CODEC, INT8, PHASE, DECODER<Number<u8>>, FUNCTION)                                           \
    X(NAME##_16, CODEC, INT16, PHASE, DECODER<Number<u16>>, FUNCTION)                                        \
    X(NAME##_32, CODEC, INT32, PHASE, DECODER<Number<u32>>, FUNCTION)                                        \
    X(NAME##_64, CODEC, INT64, PHASE, DECODER<Number<u64>>, FUNCTION)                                        \
    X(NAME##_128, CODEC, INT128, PHASE, DECODER<Number<U128>>, FUNCTION)

//! X(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)
#define GPU_KERNELS(X)                                                                                       \
    GPU_FIXED_WIDTH_KERNELS(X, constant, CONSTANT, VALUES, Constant, Values)                                 \
    GPU_FIXED_WIDTH_KERNELS(X, uncompressed, UNCOMPRESSED, VALUES, Uncompressed, Values)                     \
    GPU_FIXED_WIDTH_KERNELS(X, bitpacking, BITPACKING, VALUES, BitPacking, Values)                           \
    GPU_FIXED_WIDTH_KERNELS(X, rle_runs, RLE, PREPARE, RunLength, Prepare)                                   \
    GPU_FIXED_WIDTH_KERNELS(X, rle, RLE, VALUES, RunLength, Values)                                          \
    X(uncompressed_validity, UNCOMPRESSED, VALIDITY, VALUES, UncompressedValidity, Values)                   \
    X(uncompressed_string_lengths, UNCOMPRESSED, STRING, VALUES, UncompressedStrings, Values)                \
    X(uncompressed_strings, UNCOMPRESSED, STRING, BYTES, UncompressedStrings, Characters)                    \
    X(alp_32, ALP, FLOAT32, VALUES, Alp<Floats>, Values)                                                     \
    X(alp_64, ALP, FLOAT64, VALUES, Alp<Doubles>, Values)                                                    \
    X(alprd_32, ALPRD, FLOAT32, VALUES, AlpRd<Floats>, Values)                                               \
    X(alprd_64, ALPRD, FLOAT64, VALUES, AlpRd<Doubles>, Values)                                              \
    X(dict_fsst_dictionary, DICT_FSST, STRING, PREPARE, DictFsst, Prepare)                                   \
    X(dict_fsst_lengths, DICT_FSST, STRING, VALUES, DictFsst, Values)                                        \
    X(dict_fsst_strings, DICT_FSST, STRING, BYTES, DictFsst, Characters)                                     \
    X(roaring_containers, ROARING, VALIDITY, PREPARE, Roaring, Prepare)                                      \
    X(roaring, ROARING, VALIDITY, VALUES, Roaring, Values)

//! The kind whose kernels decode this one: floats are but numbers unless ALP stores them, Roaring's booleans are bits as
//! validity is, and validity that is constant is a number.
GPU_FUNCTION Kind KernelKind(Codec codec, Kind kind) {
    if (codec == Codec::ALP || codec == Codec::ALPRD) {
        return kind;
    }
    switch (kind) {
    case Kind::BOOL:
        return codec == Codec::ROARING ? Kind::VALIDITY : kind;
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
