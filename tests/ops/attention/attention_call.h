/**
 * Calls of attention, forward and backward, that are made from a configuration: their data in half
 * precision, the same data in f32 for the CPU, and a device's results beside the CPU's. The
 * backward gets the CPU's out and lse, so that its errors are its own. Calls in f32 allow TF32;
 * their data are numbers of f16, which TF32 has too.
 */
#ifndef TEGULA_TESTS_ATTENTION_CALL_H
#define TEGULA_TESTS_ATTENTION_CALL_H

#include "tegula/tegula.h"

typedef enum attention_layout { LAYOUT_DENSE, LAYOUT_HEAD_FIRST, LAYOUT_PACKED } attention_layout;

typedef struct attention_config {
  tg_dtype dtype;
  int64_t batch, heads, kv_heads, nq, extent, dim, v_dim;
  float softcap;
  int32_t window;
  bool causal, sinks, packed_q, packed_k, key_start, key_count, query_start;
  int64_t page;            /* rows of a block of keys; 0: no block table. Forward alone */
  attention_layout layout; /* LAYOUT_PACKED: q, k and v of one tensor; lengths must agree */
  int bad;                 /* elements that are NaN or infinity */
  bool forward_only;       /* infinity in q and k, too */
  bool any_order;          /* of the backward's sums */
  uint64_t seed;
} attention_config;

enum attention_slot {
  SLOT_Q,
  SLOT_K,
  SLOT_V,
  SLOT_DOUT,
  SLOT_OUT,
  SLOT_DQ,
  SLOT_DK,
  SLOT_DV, /* the last one of the configuration's dtype */
  SLOT_LSE,
  SLOT_SINKS,
  SLOT_DSINKS,
  SLOT_CU_Q,
  SLOT_CU_K,
  SLOT_KEY_START,
  SLOT_KEY_COUNT,
  SLOT_QUERY_START,
  SLOT_BLOCK_TABLE,
  NUM_SLOTS
};

typedef struct attention_call {
  attention_config c;
  tg_tensor view[NUM_SLOTS];   /* without data; absent: zeroed */
  int owner[NUM_SLOTS];        /* slot whose block it lies in */
  int64_t offset[NUM_SLOTS];   /* elements from that block's start */
  int64_t elements[NUM_SLOTS]; /* of its own block */
  void *narrow[NUM_SLOTS];     /* blocks as a device gets them */
  void *wide[NUM_SLOTS];       /* the same with f32 in place of the configuration's dtype */
} attention_call;

/** A random number below n. */
int64_t attention_below(uint64_t *state, int64_t n);

/** Allocates and fills what the caller gives to an op; free with attention_call_free. */
void attention_call_make(attention_call *a, const attention_config *c);
void attention_call_free(attention_call *a);
size_t attention_block_bytes(const attention_call *a, int slot);
void attention_print(const attention_config *c);

/** narrow to wide. */
void attention_widen(attention_call *a, int slot);

/** Arguments on blocks of memory, `wide` or not; without a workspace. */
tg_attention_fwd_args attention_forward_args(const attention_call *a, void *const *block,
                                             bool wide);
tg_attention_bwd_args attention_backward_args(const attention_call *a, void *const *block,
                                              bool wide);

/** Runs with a workspace of their own. */
void attention_run_forward(tg_context *ctx, tg_attention_fwd_args args);
void attention_run_backward(tg_context *ctx, tg_attention_bwd_args args);

/** The CPU's results: out, lse, then gradients of these, rounded. */
void attention_expect(attention_call *a, tg_context *cpu);

/** A call's memory on a device. */
typedef struct attention_on_device {
  const attention_call *a;
  tg_context *ctx;
  void *block[NUM_SLOTS];
  void *workspace;
  size_t workspace_bytes;
} attention_on_device;

/** Results are NaN at first, dsinks as in `narrow`. */
void attention_upload(attention_on_device *d, const attention_call *a, tg_context *ctx);
void attention_put(attention_on_device *d, int slot, const void *from);
void attention_fetch(attention_on_device *d, int slot, void *to);
void attention_release(attention_on_device *d);
void attention_forward_on(attention_on_device *d);
void attention_backward_on(attention_on_device *d);

/** Forward and backward on the context give attention_expect's results; else prints what differs.
 */
bool attention_agrees(const attention_call *a, tg_context *ctx);

/** A row of n elements of the dtype is near to the one of f32. */
bool attention_row_agrees(const void *got, tg_dtype dtype, const float *want, int64_t n);

#endif
