/**
 * Products of a warpgroup's 64 rows with N columns, 16 deep in f16 or bf16 and 32 in e4m3, with f32
 * sums, or 32 deep in int8 with sums of 32 bits (PTX: wgmma). Hopper alone. Sums of e4m3 products
 * keep some 14 bits; those of int8 are exact.
 *
 * Sums d: thread t of the warpgroup (warp w = t / 32, g = t % 32 / 4, q = t % 4) has in d[i] row
 * 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 q + i % 2. Rounded in pairs, d[8 k .. 8 k + 7] are
 * the four registers of A, 16 deep, from column 16 k on.
 *
 * Products run beside the thread's other work from wgmma_commit until wgmma_wait; until then d and
 * registers of A must not be touched. Every wait is followed by `settle` of what it waited for.
 */
#ifndef TGI_CUDA_WGMMA_CUH
#define TGI_CUDA_WGMMA_CUH

#include "cuda/half_pair.cuh"

#include <type_traits>

inline namespace TGI_CUDA_ENTRY
{

template <typename T> struct wgmma_sum_type {
  using type = float;
};

template <> struct wgmma_sum_type<int8_t> {
  using type = int;
};

/** What products of T add up to. */
template <typename T> using wgmma_sum = typename wgmma_sum_type<T>::type;

/** Rows of a page in shared memory (tma.cuh) as operand. Its depth lies along the rows' 64
 * elements, or, `turned`, along the rows; then pages of 64 columns follow each other every
 * `page_bytes`. */
__device__ __forceinline__ uint64_t page_operand(uint32_t address, uint32_t page_bytes = 16)
{
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(page_bytes >> 4) << 16 |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/** As operand, not turned: `rows` rows, whose depth of 16 elements lies in two halves of 16 bytes,
 * the first halves of all rows, one behind the other, before the second ones. */
__device__ __forceinline__ uint64_t rows_operand(uint32_t address, int rows)
{
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)rows << 16 | (uint64_t)(128 >> 4) << 32;
}

/** Bytes on, for an operand; a multiple of 16. 16 elements along a row are 32 bytes, 16 rows 2048.
 */
__device__ __forceinline__ uint64_t operand_at(uint64_t operand, int bytes)
{
  return operand + (uint64_t)(bytes >> 4);
}

/** Before the first of a run of products, and after registers that they use were touched. */
__device__ __forceinline__ void wgmma_fence()
{
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

/** Ends a group of products. */
__device__ __forceinline__ void wgmma_commit()
{
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/** Until at most kGroups of the latest groups are under way. */
template <int kGroups> __device__ __forceinline__ void wgmma_wait()
{
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kGroups) : "memory");
}

/** Keeps reads of d behind the wait. */
template <int kN> __device__ __forceinline__ void settle(float (&d)[kN])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    asm volatile("" : "+f"(d[i]) : : "memory");
  }
}

template <int kN> __device__ __forceinline__ void settle(int (&d)[kN])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    asm volatile("" : "+r"(d[i]) : : "memory");
  }
}

/* Operand lists of the instructions: %0 .. %(N / 2 - 1) are d. */
#define WGMMA_2(t) "%" #t "0,%" #t "1"
#define WGMMA_4(t) WGMMA_2(t) ",%" #t "2,%" #t "3"
#define WGMMA_6(t) WGMMA_4(t) ",%" #t "4,%" #t "5"
#define WGMMA_8(t) WGMMA_6(t) ",%" #t "6,%" #t "7"
#define WGMMA_10(t) WGMMA_8(t) ",%" #t "8,%" #t "9"
#define WGMMA_30 WGMMA_10() "," WGMMA_10(1) "," WGMMA_10(2)
#define WGMMA_60 WGMMA_30 "," WGMMA_10(3) "," WGMMA_10(4) "," WGMMA_10(5)
#define WGMMA_90 WGMMA_60 "," WGMMA_10(6) "," WGMMA_10(7) "," WGMMA_10(8)
/* c: "+f" or "+r" */
#define WGMMA_D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define WGMMA_D8(c, i) WGMMA_D4(c, i), WGMMA_D4(c, i + 4)
#define WGMMA_D16(c, i) WGMMA_D8(c, i), WGMMA_D8(c, i + 8)
#define WGMMA_D32(c, i) WGMMA_D16(c, i), WGMMA_D16(c, i + 16)
#define WGMMA_D64(c, i) WGMMA_D32(c, i), WGMMA_D32(c, i + 32)
#define WGMMA_LIST(...) __VA_ARGS__

/* X(type, N, names of d, d, numbers of the operands behind them) */
#define WGMMA_EACH(X, type, c)                                                                     \
  X(type, 8, WGMMA_4(), (WGMMA_D4(c, 0)), 4, 5, 6, 7, 8, 9)                                        \
  X(type, 16, WGMMA_8(), (WGMMA_D8(c, 0)), 8, 9, 10, 11, 12, 13)                                   \
  X(type, 32, WGMMA_10() "," WGMMA_6(1), (WGMMA_D16(c, 0)), 16, 17, 18, 19, 20, 21)                \
  X(type, 64, WGMMA_30 "," WGMMA_2(3), (WGMMA_D32(c, 0)), 32, 33, 34, 35, 36, 37)                  \
  X(type, 80, WGMMA_30 "," WGMMA_10(3), (WGMMA_D32(c, 0), WGMMA_D8(c, 32)), 40, 41, 42, 43, 44,    \
    45)                                                                                            \
  X(type, 96, WGMMA_30 "," WGMMA_10(3) "," WGMMA_8(4), (WGMMA_D32(c, 0), WGMMA_D16(c, 32)), 48,    \
    49, 50, 51, 52, 53)                                                                            \
  X(type, 112, WGMMA_30 "," WGMMA_10(3) "," WGMMA_10(4) "," WGMMA_6(5),                            \
    (WGMMA_D32(c, 0), WGMMA_D16(c, 32), WGMMA_D8(c, 48)), 56, 57, 58, 59, 60, 61)                  \
  X(type, 128, WGMMA_60 "," WGMMA_4(6), (WGMMA_D64(c, 0)), 64, 65, 66, 67, 68, 69)                 \
  X(type, 160, WGMMA_60 "," WGMMA_10(6) "," WGMMA_10(7), (WGMMA_D64(c, 0), WGMMA_D16(c, 64)), 80,  \
    81, 82, 83, 84, 85)                                                                            \
  X(type, 192, WGMMA_90 "," WGMMA_6(9), (WGMMA_D64(c, 0), WGMMA_D32(c, 64)), 96, 97, 98, 99, 100,  \
    101)                                                                                           \
  X(type, 256, WGMMA_90 "," WGMMA_10(9) "," WGMMA_10(10) "," WGMMA_10(11) "," WGMMA_8(12),         \
    (WGMMA_D64(c, 0), WGMMA_D64(c, 64)), 128, 129, 130, 131, 132, 133)
/* form: depth and types; from: the operands' numbers; tail: signs and turns; then the operands. */
#define WGMMA_ASM(n, add, form, names, from, tail, sums, ...)                                      \
  if constexpr (kN == n) {                                                                         \
    asm volatile("{\n\t"                                                                           \
                 ".reg .pred add;\n\t"                                                             \
                 "setp.ne.b32 add, %" #add ", 0;\n\t"                                              \
                 "wgmma.mma_async.sync.aligned.m64n" #n form " {" names "}, " from ", add" tail    \
                 ";\n\t"                                                                           \
                 "}"                                                                               \
                 : WGMMA_LIST sums                                                                 \
                 : __VA_ARGS__);                                                                   \
  }
#define WGMMA_FOUR(i0, i1, i2, i3) "{%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}"
#define WGMMA_SHARED(type, n, names, sums, i0, i1, i2, i3, i4, i5)                                 \
  WGMMA_ASM(n, i2, "k16.f32." #type "." #type, names, "%" #i0 ", %" #i1,                           \
            ", 1, 1, %" #i3 ", %" #i4, sums, "l"(a), "l"(b), "r"((int)add), "n"((int)kTurnA),      \
            "n"((int)kTurnB))
#define WGMMA_TURNED(type, n, names, sums, i0, i1, i2, i3, i4, i5)                                 \
  WGMMA_ASM(n, i5, "k16.f32." #type "." #type, names, WGMMA_FOUR(i0, i1, i2, i3) ", %" #i4,        \
            ", 1, 1, 1", sums, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))
#define WGMMA_REGISTERS(type, n, names, sums, i0, i1, i2, i3, i4, i5)                              \
  WGMMA_ASM(n, i5, "k16.f32." #type "." #type, names, WGMMA_FOUR(i0, i1, i2, i3) ", %" #i4,        \
            ", 1, 1, 0", sums, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))
/* Of bytes both operands' depth lies along the rows, and there is nothing to turn; integers have no
 * sign to turn either. */
#define WGMMA_E4M3(type, n, names, sums, i0, i1, i2, i3, i4, i5)                                   \
  WGMMA_ASM(n, i2, "k32.f32." #type "." #type, names, "%" #i0 ", %" #i1, ", 1, 1", sums, "l"(a),   \
            "l"(b), "r"((int)add))
#define WGMMA_E4M3_REGISTERS(type, n, names, sums, i0, i1, i2, i3, i4, i5)                         \
  WGMMA_ASM(n, i5, "k32.f32." #type "." #type, names, WGMMA_FOUR(i0, i1, i2, i3) ", %" #i4,        \
            ", 1, 1", sums, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))
#define WGMMA_INT8(type, n, names, sums, i0, i1, i2, i3, i4, i5)                                   \
  WGMMA_ASM(n, i2, "k32.s32." #type "." #type, names, "%" #i0 ", %" #i1, "", sums, "l"(a), "l"(b), \
            "r"((int)add))

/** d = A B, or d += A B if `add`; A and B in shared memory, turned or, as all of one byte, not. */
template <typename T, int kN, bool kTurnA = false, bool kTurnB = false>
__device__ __forceinline__ void multiply(wgmma_sum<T> (&d)[kN / 2], uint64_t a, uint64_t b,
                                         bool add)
{
  if constexpr (std::is_same_v<T, int8_t>) {
    static_assert(!kTurnA && !kTurnB, "bytes are not turned");
    WGMMA_EACH(WGMMA_INT8, s8, "+r")
  } else if constexpr (sizeof(T) == 1) {
    static_assert(!kTurnA && !kTurnB, "bytes are not turned");
    WGMMA_EACH(WGMMA_E4M3, e4m3, "+f")
  } else if constexpr (kIsBf16<T>) {
    WGMMA_EACH(WGMMA_SHARED, bf16, "+f")
  } else {
    WGMMA_EACH(WGMMA_SHARED, f16, "+f")
  }
}

/** The same with A in registers: a[i] has row g + 8 (i % 2) of the warp's 16, columns 8 (i / 2) + 2
 * q and the next, or of e4m3 16 (i / 2) + 4 q .. + 3. */
template <typename T, int kN>
__device__ __forceinline__ void multiply_by_registers(float (&d)[kN / 2], const uint32_t *a,
                                                      uint64_t b, bool add)
{
  if constexpr (sizeof(T) == 1) {
    WGMMA_EACH(WGMMA_E4M3_REGISTERS, e4m3, "+f")
  } else if constexpr (kIsBf16<T>) {
    WGMMA_EACH(WGMMA_REGISTERS, bf16, "+f")
  } else {
    WGMMA_EACH(WGMMA_REGISTERS, f16, "+f")
  }
}

/** The same of 16 bits with A in registers, and B turned. */
template <typename T, int kN>
__device__ __forceinline__ void multiply_turned(float (&d)[kN / 2], const uint32_t *a, uint64_t b,
                                                bool add)
{
  if constexpr (kIsBf16<T>) {
    WGMMA_EACH(WGMMA_TURNED, bf16, "+f")
  } else {
    WGMMA_EACH(WGMMA_TURNED, f16, "+f")
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
