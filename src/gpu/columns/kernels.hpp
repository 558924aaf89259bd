#pragma once
//! Kernels that put batches together from decoded columns: names, and what they run.
#include "gpu/columns/convert.hpp"
#include "gpu/columns/gather.hpp"
#include "gpu/columns/nulls.hpp"
#include "gpu/columns/pull.hpp"
#include "gpu/columns/sums.hpp"

namespace rawduck::gpu {

//! X(NAME, FUNCTION): a thread block of BLOCK lanes for each group. FUNCTION::Run gets its Arguments, the number of the
//! group and what the block shares.
#define GPU_COLUMN_KERNELS(X)                                                                                \
    X(sum_groups_of_numbers, GroupSums<u32>)                                                                 \
    X(sum_groups_of_bytes, GroupSums<u8>)                                                                    \
    X(sum_group_starts, GroupStarts)                                                                         \
    X(sum_offsets, WriteOffsets)                                                                             \
    X(list_rows, WriteRows)                                                                                  \
    X(gather_8, GatherValues<u8>)                                                                            \
    X(gather_16, GatherValues<u16>)                                                                          \
    X(gather_32, GatherValues<u32>)                                                                          \
    X(gather_64, GatherValues<u64>)                                                                          \
    X(gather_128, GatherValues<U128>)                                                                        \
    X(string_lengths, StringLengths)                                                                         \
    X(string_fit, FitStrings)                                                                                \
    X(string_offsets, StringOffsets)                                                                         \
    X(string_listed_characters, ListedCharacters)                                                            \
    X(string_all_characters, AllCharacters)                                                                  \
    X(convert_to_int32, Converted<ToInt32>)                                                                  \
    X(convert_to_int64, Converted<ToInt64>)                                                                  \
    X(convert_to_float64, Converted<ToFloat64>)                                                              \
    X(convert_to_uuid, Converted<ToUuid>)                                                                    \
    X(pack_bits, PackedBits)                                                                                 \
    X(replace_nulls, ReplacedNulls)                                                                          \
    X(pull_pieces, PulledPieces)

} // namespace rawduck::gpu
