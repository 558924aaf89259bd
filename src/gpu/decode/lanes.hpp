#pragma once
//! One source, two compilers. NVRTC makes kernels of it: a thread block of BLOCK lanes. A C++ compiler makes the same
//! blocks as loops, for machines without a GPU and for tests. Kernels therefore say what each lane does between two
//! barriers, in GPU_EACH and GPU_LANES, and everything else is the same for all lanes of a block. No header of the
//! standard library: NVRTC has none.

#ifdef __CUDACC__
#define GPU_FUNCTION __device__ __forceinline__
#define GPU_CONSTANT __constant__ const
//! The lanes share out the numbers 0 … count-1 in turn.
#define GPU_EACH(index, count)                                                                               \
    for (::rawduck::gpu::u32 index = threadIdx.x; index < (count); index += ::rawduck::gpu::BLOCK)
//! Once for each lane.
#define GPU_LANES(lane)                                                                                      \
    for (::rawduck::gpu::u32 lane = threadIdx.x, lane##_once = 1; lane##_once; lane##_once = 0)
//! Before a loop that is seldom run: it is not unrolled.
#define GPU_KEEP_LOOP _Pragma("unroll 1")
//! Nothing behind it happens before all lanes have come here.
#define GPU_SYNC() __syncthreads()
#else
#define GPU_FUNCTION inline
#define GPU_CONSTANT inline constexpr
#define GPU_EACH(index, count) for (::rawduck::gpu::u32 index = 0; index < (count); index++)
#define GPU_LANES(lane) for (::rawduck::gpu::u32 lane = 0; lane < ::rawduck::gpu::BLOCK; lane++)
#define GPU_KEEP_LOOP
#define GPU_SYNC()
#endif

namespace rawduck::gpu {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

//! Lanes of a thread block.
constexpr u32 BLOCK = 256;

//! 128 bits, as DuckDB stores them: the low half first.
struct U128 {
    u64 low = 0;
    u64 high = 0;
};

//! Sums and products of stored numbers wrap around, as DuckDB's do. `Plus` and `Times` are the same for all widths.
template <class T> GPU_FUNCTION T Plus(T left, T right) {
    return static_cast<T>(left + right);
}

template <> GPU_FUNCTION U128 Plus(U128 left, U128 right) {
    const u64 low = left.low + right.low;
    return {low, left.high + right.high + (low < left.low ? 1 : 0)};
}

template <class T> GPU_FUNCTION T Times(T value, u32 factor) {
    return static_cast<T>(static_cast<u64>(value) * factor);
}

template <> GPU_FUNCTION U128 Times(U128 value, u32 factor) {
    const u64 lowest = (value.low & 0xffffffffu) * factor;
    const u64 middle = (value.low >> 32) * factor + (lowest >> 32);
    return {middle << 32 | (lowest & 0xffffffffu), value.high * factor + (middle >> 32)};
}

//! Sets bits in a word that other blocks set bits in, too.
GPU_FUNCTION void SetBits(u32 *word, u32 bits) {
#ifdef __CUDACC__
    atomicOr(word, bits);
#else
    __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
#endif
}

//! Exclusive or, into a number that other blocks change in this way, too.
GPU_FUNCTION void XorInto(u64 *number, u64 value) {
#ifdef __CUDACC__
    atomicXor(number, value);
#else
    __atomic_fetch_xor(number, value, __ATOMIC_RELAXED);
#endif
}

//! Adds to a number that other blocks add to, too.
GPU_FUNCTION void AddTo(u64 *sum, u64 value) {
#ifdef __CUDACC__
    atomicAdd(sum, value);
#else
    __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
#endif
}

//! Each of the BLOCK numbers becomes the sum of itself and those before it. `sums` is shared by the block.
template <class T> GPU_FUNCTION void SumUp(T *sums) {
    GPU_SYNC();
#ifdef __CUDACC__
    for (u32 distance = 1; distance < BLOCK; distance *= 2) {
        const T before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : T();
        GPU_SYNC();
        sums[threadIdx.x] = Plus(before, sums[threadIdx.x]);
        GPU_SYNC();
    }
#else
    for (u32 lane = 1; lane < BLOCK; lane++) {
        sums[lane] = Plus(sums[lane - 1], sums[lane]);
    }
#endif
}

} // namespace rawduck::gpu
