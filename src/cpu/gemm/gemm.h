/**
 * Matrix products of any shape: C = A B, with what usually follows applied to each tile of C while
 * it is in the cache.
 *
 * Method     Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication". C is
 *            cut into blocks, one task each. For every block of K a task packs its part of B
 *            (about half of the L2 cache), then goes down A in groups of rows, packs
 *            each, and multiplies panels of MR rows with panels of NR columns in registers.
 *            Packing widens f16 and bf16 to f32 and gathers picked rows; an A whose rows need
 *            none of this and no turn is read where it lies. Tasks share nothing, so there is no
 *            barrier.
 * Order      An element of C is the sum over blocks of K, in order; a block is the sum of chains
 *            of TGI_CHAIN units, in order, each of fused multiply-adds (generic: multiply, then
 *            add), k ascending, from zero. How K is cut depends on K alone. So a row's bits depend
 *            on neither the number of rows nor of columns, nor on threads; few rows (gemv.c) keep
 *            this order too.
 * bf16       Compiled once more with TGI_GEMM_PAIRS for processors that have AVX512-BF16: a 32-bit
 *            unit then holds two neighbours in k as bf16, and a step is VDPBF16PS on units. It
 *            takes denormals as zero.
 *
 * Every function here exists once per chain entry; the names below carry the entry's name.
 */
#ifndef TGI_CPU_GEMM_H
#define TGI_CPU_GEMM_H

#include "core/context_state.h"
#include "cpu/simd.h"

#define TGI_GEMM_JOIN_(name, entry) tgi_##name##_##entry
#define TGI_GEMM_JOIN(name, entry) TGI_GEMM_JOIN_(name, entry)
#define TGI_GEMM_NAME(name) TGI_GEMM_JOIN(name, TGI_ENTRY)

/**
 * A matrix with one contiguous axis. Its outer index o is A's row or B's column:
 *   along_k    element (o, k) is data[o * stride + k]
 *   otherwise  element (o, k) is data[k * stride + o]
 */
typedef struct tgi_gemm_operand {
  const void *data;
  tg_dtype dtype; /* f32, f16, bf16 */
  int64_t stride;
  bool along_k;
  const int32_t *pick; /* NULL: the strided axis as it lies; else its index i means pick[i] / share.
                          Not for B along k */
  int64_t share;       /* with pick: at least 1 */
} tgi_gemm_operand;

/** A matrix as it lies. */
static inline tgi_gemm_operand tgi_gemm_matrix(const void *data, tg_dtype dtype, int64_t stride,
                                               bool along_k)
{
  return (tgi_gemm_operand){.data = data, .dtype = dtype, .stride = stride, .along_k = along_k};
}

/** Elements from the data to index i of the strided axis. */
static inline int64_t tgi_gemm_distance(const tgi_gemm_operand *o, int64_t i)
{
  return (o->pick ? o->pick[i] / o->share : i) * o->stride;
}

typedef enum tgi_gemm_activation {
  TGI_GEMM_NO_ACTIVATION,
  TGI_GEMM_GELU_TANH,
  TGI_GEMM_GELU_ERF,
} tgi_gemm_activation;

/**
 * Where the product p goes: preactivation = p + bias; y = act(p + bias) + residual, each rounded
 * once from f32. NULL: absent. residual may be y itself. With `accumulate` (f32, and nothing else)
 * y += p, one block of K after the other.
 */
typedef struct tgi_gemm_result {
  void *y;
  tg_dtype dtype; /* of y, residual and preactivation */
  int64_t stride;
  const void *bias; /* one per column */
  tg_dtype bias_dtype;
  const void *residual;
  int64_t residual_stride;
  void *preactivation;
  int64_t preactivation_stride;
  tgi_gemm_activation activation;
  bool accumulate;
} tgi_gemm_result;

typedef struct tgi_gemm_problem {
  int64_t m, n, k; /* C is [m, n]; k may be 0: the product is then zero */
  tgi_gemm_operand a, b;
  tgi_gemm_result c;
} tgi_gemm_problem;

/** Bytes of workspace for all threads of the context. */
#define tgi_gemm_workspace TGI_GEMM_NAME(gemm_workspace)
size_t tgi_gemm_workspace(const tg_context *ctx, const tgi_gemm_problem *p);

/** Bytes that serve p and every product like it with no larger m, n and k. */
#define tgi_gemm_workspace_within TGI_GEMM_NAME(gemm_workspace_within)
size_t tgi_gemm_workspace_within(const tg_context *ctx, const tgi_gemm_problem *p);

/** Computes, on the context's threads; the workspace is 64-byte aligned. */
#define tgi_gemm TGI_GEMM_NAME(gemm)
void tgi_gemm(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace);

/** Writes one line: "gemm 256x384 in 8 tasks, k 384". */
#define tgi_gemm_explain TGI_GEMM_NAME(gemm_explain)
void tgi_gemm_explain(const tg_context *ctx, const tgi_gemm_problem *p, char *text, size_t bytes);

/* ---- tiles: the serial parts, for kernels that keep their operands in the cache ---- */

enum {
  TGI_GEMM_MR = TGI_LANES == 16  ? 12
                : TGI_LANES == 8 ? 6
                                 : 4, /* rows of a register tile */
  TGI_GEMM_NR = 2 * TGI_LANES,        /* its columns */
  TGI_GEMM_MAX_K = 384,               /* units that a packed operand may hold */
  TGI_GEMM_A_STRIDE = 400, /* units from one packed row of A to the next: not a power of two */
};

/** Floats of k rows (columns of B's transpose) packed: A [m, k] and B [k, n]. */
static inline int64_t tgi_gemm_packed_a_floats(int64_t m)
{
  return (m + TGI_GEMM_MR - 1) / TGI_GEMM_MR * TGI_GEMM_MR * TGI_GEMM_A_STRIDE + TGI_LANES;
}
static inline int64_t tgi_gemm_packed_b_floats(int64_t n, int64_t k)
{
  return (n + TGI_GEMM_NR - 1) / TGI_GEMM_NR * TGI_GEMM_NR * k;
}

/**
 * Packs rows [o0, o0 + m) or columns [o0, o0 + n) of an operand, units [k0, k0 + k) of k_end
 * elements in all; k <= TGI_GEMM_MAX_K. Columns past n are zero. Buffers are 64-byte aligned.
 */
#define tgi_gemm_pack_a TGI_GEMM_NAME(gemm_pack_a)
void tgi_gemm_pack_a(const tgi_gemm_operand *a, int64_t o0, int64_t m, int64_t k0, int64_t k,
                     int64_t k_end, float *packed);
#define tgi_gemm_pack_b TGI_GEMM_NAME(gemm_pack_b)
void tgi_gemm_pack_b(const tgi_gemm_operand *b, int64_t o0, int64_t n, int64_t k0, int64_t k,
                     int64_t k_end, float *packed);

/**
 * Register tile: mr <= MR rows by one or two vectors of columns, from one panel of each operand.
 * Along k, unit k of A's row i lies 4 k bytes behind the row's start, a_stride bytes apart from the
 * next row's and aligned to nothing; otherwise it is a[k * TGI_GEMM_MR + i]. B's row k is at
 * b + k * nv * TGI_LANES.
 */
typedef void tgi_gemm_micro(int64_t k, const void *a, int64_t a_stride, const float *b, float *c,
                            int64_t stride, bool add);
#define tgi_gemm_micro_at TGI_GEMM_NAME(gemm_micro_at)
tgi_gemm_micro *tgi_gemm_micro_at(int64_t mr, int64_t nv, bool along_k);

#endif
