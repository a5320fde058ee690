/**
 * Matrix products as data: what is multiplied (tgi_gemm_problem), and how it would run
 * (tgi_gemm_plan). A plan is a pure function of the problem and the device, computed on the host
 * before anything is launched; without a GPU it can be tested and printed.
 *
 *   C [m, n] = op(A) [m, k] op(B) [k, n], with f32 sums
 *
 * Groups divide one axis into runs that follow each other; where the runs end is known on the
 * device alone.
 *
 *   ROWS    of m: each group has a B of its own (rows of experts; their dx)
 *   STEPS   of k: each group has a C of its own (gradients of experts' weights)
 */
#ifndef TGI_CUDA_GEMM_PROBLEM_H
#define TGI_CUDA_GEMM_PROBLEM_H

#include "tegula/tensor.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which axis of an operand is contiguous: NT is A and B along k, NN is A along k and B across it,
 * TN is both across it. */
typedef enum tgi_gemm_major { TGI_GEMM_ALONG_K, TGI_GEMM_ACROSS_K } tgi_gemm_major;

typedef struct tgi_gemm_operand {
  tg_dtype dtype;
  tgi_gemm_major major;
  bool vectors; /* every contiguous run begins at a multiple of 16 bytes; C's need not in some */
} tgi_gemm_operand;

typedef enum tgi_gemm_groups {
  TGI_GEMM_ONE_GROUP,
  TGI_GEMM_GROUPS_OF_ROWS,
  TGI_GEMM_GROUPS_OF_STEPS
} tgi_gemm_groups;

/** What follows the sums in the same kernel. GATED: pairs of columns, of halves or interleaved, are
 * the gate and up of an activation, which has half as many columns. */
typedef enum tgi_gemm_epilogue {
  TGI_GEMM_STORE,
  TGI_GEMM_GATED_HALVES,
  TGI_GEMM_GATED_PAIRS
} tgi_gemm_epilogue;

typedef struct tgi_gemm_problem {
  int64_t m, n, k; /* of all groups together where they divide the axis */
  tgi_gemm_groups grouped;
  int64_t groups; /* 1 without */
  tgi_gemm_operand a, b, c;
  tgi_gemm_epilogue epilogue;
  bool allow_tf32; /* of f32 operands: products may be in TF32 */
  bool adds;       /* C += */
  bool finishes;   /* ONE_GROUP: an activation, or saved values before it */
  bool reads;      /* ONE_GROUP: a residual, or C += of 16 bits */
} tgi_gemm_problem;

typedef struct tgi_gemm_device {
  int multiprocessors;
  int64_t shared_bytes; /* that a block may have */
} tgi_gemm_device;

typedef enum tgi_gemm_kernel {
  TGI_GEMM_NOT_TAKEN,    /* `reason` says why; another entry or library multiplies */
  TGI_GEMM_SM90_TILES,   /* gemm_sm90.cuh */
  TGI_GEMM_SM90_IN_STEP, /* gemm_in_step_sm90.cuh */
  TGI_GEMM_SM90_FEW,     /* gemm_few_rows_sm90.cuh */
  TGI_GEMM_MMA           /* gemm_sm80.cuh */
} tgi_gemm_kernel;

typedef struct tgi_gemm_plan {
  tgi_gemm_kernel kernel;
  const char *reason;
  bool fused; /* the epilogue runs in the kernel; else behind it */
  int tile_m, tile_n, tile_k, stages;
  int64_t row_tiles, column_tiles; /* ROWS: the most that the groups can have */
  int64_t tiles;
  int parts; /* of k, by blocks of a cluster; FEW; IN_STEP: 0 if not in parts */
  int blocks;
  size_t shared;
  double microseconds; /* an estimate; ONE_GROUP of tiles */
} tgi_gemm_plan;

enum {
  TGI_GEMM_MOST_GROUPS = 1024, /* whose ends fit beside the tiles in shared memory */
  TGI_GEMM_FEW_ROWS = 64,      /* of A, up to which a product NT is one of few rows */
  TGI_GEMM_FEW_OUTPUTS = 128,  /* columns of a tile */
  TGI_GEMM_FEW_STEP = 64,      /* along k */
  TGI_GEMM_FEW_PARTS = 8,      /* of k at most: a cluster that every GPU can form */
  TGI_GEMM_MMA_LARGE = 128,    /* rows and columns of mma.sync's tiles */
  TGI_GEMM_MMA_MIDDLE = 64,
  TGI_GEMM_MMA_FEW_ROWS = 16,
  TGI_GEMM_MMA_FEW_COLUMNS = 32,
  TGI_GEMM_MMA_LARGE_BYTES = 72 << 10 /* of shared memory, at most */
};

/** The plan of tiles for a GPU of compute capability 9.0. */
tgi_gemm_plan tgi_gemm_plan_sm90(const tgi_gemm_problem *problem, const tgi_gemm_device *device);

/** The plan of a product without groups for a GPU of compute capability 9.0: of the kernels and
 * widths of tiles that take it, the one with the lowest estimate of time. */
tgi_gemm_plan tgi_gemm_plan_dense_sm90(const tgi_gemm_problem *problem,
                                       const tgi_gemm_device *device);

/** The plan of tiles `tile_n` wide, whether or not they are the best: 256 and 128 (IN_STEP), 192
 * (TILES). NOT_TAKEN if they do not take the problem. */
tgi_gemm_plan tgi_gemm_plan_tiles_sm90(const tgi_gemm_problem *problem,
                                       const tgi_gemm_device *device, int tile_n);

/** The plan of a product NT of two operands in e4m3 or in int8, with scales behind the sums (and
 * zero points of int8), in tiles that finish in step; C is of f32, f16 or bf16. */
tgi_gemm_plan tgi_gemm_plan_bytes_sm90(const tgi_gemm_problem *problem,
                                       const tgi_gemm_device *device);

/** The plan of few rows for a GPU of compute capability 9.0, of operands of 16 bits or e4m3; C may
 * have any dtype. How k is split depends on n and k alone. */
tgi_gemm_plan tgi_gemm_plan_few_sm90(const tgi_gemm_problem *problem);

/** The plan of a product without groups for GPUs of compute capability 8.0 and later: which tiles.
 * An element's bits are the same whichever. TF32 of f32 operands where the problem allows it. */
tgi_gemm_plan tgi_gemm_plan_mma(const tgi_gemm_problem *problem, const tgi_gemm_device *device);

/** One line about a plan that is taken, such as
 * "wgmma, NT, 32 groups of rows, tiles of 128 x 192, 4 stages of 64 steps, SwiGLU beside them". */
void tgi_gemm_plan_text(const tgi_gemm_problem *problem, const tgi_gemm_plan *plan, char *text,
                        size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
