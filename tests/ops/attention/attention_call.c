#include "attention_call.h"

#include "core/tensor_view.h"
#include "core/values/half.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kSpareBlocks = 3 }; /* of no sequence */

/* ---- data ---- */

static uint64_t random_bits(uint64_t *state)
{
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t attention_below(uint64_t *state, int64_t n)
{
  return (int64_t)(random_bits(state) >> 33) % n;
}

/* Of mean 0 and variance 1, nearly normal: four uniform numbers. */
static float random_value(uint64_t *state)
{
  const uint64_t z = random_bits(state);
  const float sum =
      (float)(z & 65535) + (float)(z >> 16 & 65535) + (float)(z >> 32 & 65535) + (float)(z >> 48);
  return (sum - 131070.0f) * (1.7320508f / 65536);
}

static bool has_dtype(int slot)
{
  return slot <= SLOT_DV;
}

size_t attention_block_bytes(const attention_call *a, int slot)
{
  return (size_t)a->elements[slot] * (has_dtype(slot) ? tg_dtype_bytes(a->c.dtype) : 4);
}

void attention_print(const attention_config *c)
{
  fprintf(stderr,
          "seed %llu: %s b%d h%d/%d s%d sk%d d%d/%d causal %d window %d softcap %g sinks %d packed "
          "%d%d keys %d%d start %d page %d layout %d bad %d forward only %d any order %d\n",
          (unsigned long long)c->seed, tg_dtype_name(c->dtype), (int)c->batch, (int)c->heads,
          (int)c->kv_heads, (int)c->nq, (int)c->extent, (int)c->dim, (int)c->v_dim, c->causal,
          c->window, (double)c->softcap, c->sinks, c->packed_q, c->packed_k, c->key_start,
          c->key_count, c->query_start, (int)c->page, (int)c->layout, c->bad, c->forward_only,
          c->any_order);
}

/* ---- views ---- */

static void place(attention_call *a, int slot, int64_t batch, int64_t rows, int64_t heads,
                  int64_t dim)
{
  tg_tensor *t = &a->view[slot];
  *t = tg_tensor_4d(NULL, a->c.dtype, batch, rows, heads, dim);
  const bool head_first = a->c.layout == LAYOUT_HEAD_FIRST;
  t->stride[0] = rows * heads * dim;
  t->stride[1] = head_first ? dim : heads * dim;
  t->stride[2] = head_first ? rows * dim : dim;
  t->stride[3] = 1;
  a->owner[slot] = slot;
  a->elements[slot] = tgi_numel(t);
}

/* Three slots from `first` on become parts of one tensor. */
static void pack_parts(attention_call *a, int first)
{
  int64_t row = 0;
  for (int s = first; s < first + 3; s++) {
    a->owner[s] = first;
    a->offset[s] = row;
    a->elements[s] = 0;
    row += a->view[s].shape[2] * a->view[s].shape[3];
  }
  for (int s = first; s < first + 3; s++) {
    tg_tensor *t = &a->view[s];
    t->stride[0] = t->shape[1] * row;
    t->stride[1] = row;
    t->stride[2] = t->shape[3];
    a->elements[first] = t->shape[0] * t->shape[1] * row;
  }
}

static void place_plain(attention_call *a, int slot, bool present, tg_tensor t)
{
  a->owner[slot] = slot;
  if (present) {
    a->view[slot] = t;
    a->elements[slot] = tgi_numel(&t);
  }
}

static void place_all(attention_call *a)
{
  const attention_config *c = &a->c;
  const int64_t blocks = c->page ? c->extent / c->page : 0; /* of a sequence */
  const int64_t qb = c->packed_q ? 1 : c->batch;
  const int64_t kb = c->page ? c->batch * blocks + kSpareBlocks : c->packed_k ? 1 : c->batch;
  const int64_t rows = c->page ? c->page : c->extent;
  for (int i = 0; i < 2; i++) { /* inputs, gradients */
    place(a, i ? SLOT_DQ : SLOT_Q, qb, c->nq, c->heads, c->dim);
    place(a, i ? SLOT_DK : SLOT_K, kb, rows, c->kv_heads, c->dim);
    place(a, i ? SLOT_DV : SLOT_V, kb, rows, c->kv_heads, c->v_dim);
    place(a, i ? SLOT_DOUT : SLOT_OUT, qb, c->nq, c->heads, c->v_dim);
  }
  if (c->layout == LAYOUT_PACKED) {
    pack_parts(a, SLOT_Q);
    pack_parts(a, SLOT_DQ);
  }
  const int64_t lse[3] = {qb, c->heads, c->nq};
  const tg_tensor heads = tg_tensor_1d(NULL, TG_F32, c->heads);
  const tg_tensor each = tg_tensor_1d(NULL, TG_I32, c->batch);
  const tg_tensor cuts = tg_tensor_1d(NULL, TG_I32, c->batch + 1);
  place_plain(a, SLOT_LSE, true, tg_tensor_view(NULL, TG_F32, 3, lse));
  place_plain(a, SLOT_SINKS, c->sinks, heads);
  place_plain(a, SLOT_DSINKS, c->sinks, heads);
  place_plain(a, SLOT_CU_Q, c->packed_q, cuts);
  place_plain(a, SLOT_CU_K, c->packed_k, cuts);
  place_plain(a, SLOT_KEY_START, c->key_start, each);
  place_plain(a, SLOT_KEY_COUNT, c->key_count, each);
  place_plain(a, SLOT_QUERY_START, c->query_start, each);
  place_plain(a, SLOT_BLOCK_TABLE, c->page > 0, tg_tensor_2d(NULL, TG_I32, c->batch, blocks));
}

static tg_tensor view_of(const attention_call *a, void *const *block, int slot, bool wide)
{
  tg_tensor t = a->view[slot];
  if (t.ndim > 0) {
    t.dtype = wide && has_dtype(slot) ? TG_F32 : t.dtype;
    t.data = (char *)block[a->owner[slot]] + a->offset[slot] * (int64_t)tg_dtype_bytes(t.dtype);
  }
  return t;
}

/* ---- values ---- */

static int ascending(const void *a, const void *b)
{
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static void fill_cuts(attention_call *a, int slot, int64_t rows, uint64_t *state)
{
  int32_t *cut = a->narrow[slot];
  for (int64_t b = 0; b < a->c.batch; b++) {
    cut[b] = b == 0 ? 0 : (int32_t)attention_below(state, rows + 1);
  }
  cut[a->c.batch] = (int32_t)rows;
  qsort(cut, (size_t)a->c.batch + 1, sizeof *cut, ascending);
}

static void fill_lengths(attention_call *a, uint64_t *state)
{
  const attention_config *c = &a->c;
  if (c->packed_q) {
    fill_cuts(a, SLOT_CU_Q, c->nq, state);
  }
  if (c->packed_k) {
    fill_cuts(a, SLOT_CU_K, c->extent, state);
  }
  const int32_t *cut = a->narrow[SLOT_CU_K];
  int32_t *start = a->narrow[SLOT_KEY_START], *count = a->narrow[SLOT_KEY_COUNT];
  int32_t *position = a->narrow[SLOT_QUERY_START];
  for (int64_t b = 0; b < c->batch; b++) {
    const int64_t extent = c->packed_k ? cut[b + 1] - cut[b] : c->extent;
    const int64_t first = c->key_start ? attention_below(state, extent / 2 + 1) : 0;
    const bool none = attention_below(state, 7) == 0;
    if (c->key_start) {
      start[b] = (int32_t)first;
    }
    if (c->key_count) {
      count[b] = none ? 0 : (int32_t)attention_below(state, extent - first + 1);
    }
    if (c->query_start) {
      position[b] = (int32_t)attention_below(state, extent + 40) - 20;
    }
  }
}

/* A permutation of the blocks; entries that hold no keys are no block. */
static void fill_table(attention_call *a, uint64_t *state)
{
  const attention_config *c = &a->c;
  const int64_t blocks = c->extent / c->page, entries = c->batch * blocks;
  const int32_t *start = a->narrow[SLOT_KEY_START], *count = a->narrow[SLOT_KEY_COUNT];
  int32_t *table = a->narrow[SLOT_BLOCK_TABLE];
  for (int64_t i = 0; i < entries; i++) {
    const int64_t other = attention_below(state, i + 1);
    table[i] = table[other];
    table[other] = (int32_t)(i + (i > entries / 2 ? kSpareBlocks : 0));
  }
  for (int64_t i = 0; i < entries; i++) {
    const int64_t b = i / blocks, row = i % blocks * c->page;
    const int64_t first = c->key_start ? start[b] : 0;
    const int64_t end = c->key_count ? first + count[b] : c->extent;
    table[i] = row < end && row + c->page > first && end > first ? table[i] : -1;
  }
}

/* A number that the configuration's products take as it is. */
static void put_value(attention_call *a, int slot, int64_t i, float x)
{
  const double value = tgi_round(a->c.dtype == TG_F32 ? TG_F16 : a->c.dtype, (double)x);
  tgi_store(a->narrow[slot], a->c.dtype, i, value);
}

/* Infinity in q or k makes scores of which only the forward says what they are. */
static void spoil(attention_call *a, uint64_t *state)
{
  static const int slots[] = {SLOT_V, SLOT_V, SLOT_K, SLOT_Q, SLOT_DOUT};
  const int slot = slots[attention_below(state, 5)];
  const tg_tensor *t = &a->view[slot];
  int64_t at = a->offset[slot];
  for (int axis = 0; axis < 4; axis++) {
    at += attention_below(state, t->shape[axis]) * t->stride[axis];
  }
  const bool may = a->c.forward_only || slot == SLOT_V || slot == SLOT_DOUT;
  const int64_t kind = attention_below(state, 4);
  const double bad = kind < 2 || !may ? NAN : kind == 2 ? INFINITY : -INFINITY;
  tgi_store(a->narrow[a->owner[slot]], a->c.dtype, at, bad);
}

void attention_widen(attention_call *a, int slot)
{
  if (!has_dtype(slot)) {
    memcpy(a->wide[slot], a->narrow[slot], attention_block_bytes(a, slot));
    return;
  }
  float *to = a->wide[slot];
  for (int64_t i = 0; i < a->elements[slot]; i++) {
    to[i] = (float)tgi_load(a->narrow[slot], a->c.dtype, i);
  }
}

void attention_call_make(attention_call *a, const attention_config *c)
{
  *a = (attention_call){.c = *c};
  if (c->page) {
    a->c.extent = (c->extent + c->page - 1) / c->page * c->page;
  }
  uint64_t state = c->seed;
  place_all(a);
  for (int s = 0; s < NUM_SLOTS; s++) {
    a->narrow[s] = calloc((size_t)a->elements[s] + 1, 4);
    a->wide[s] = calloc((size_t)a->elements[s] + 1, 4);
    assert_true(a->narrow[s] && a->wide[s]);
  }
  for (int s = SLOT_Q; s <= SLOT_DOUT; s++) {
    for (int64_t i = 0; i < a->elements[s]; i++) {
      put_value(a, s, i, random_value(&state));
    }
  }
  for (int64_t h = 0; h < a->elements[SLOT_SINKS]; h++) {
    ((float *)a->narrow[SLOT_SINKS])[h] = 2 * random_value(&state);
    ((float *)a->narrow[SLOT_DSINKS])[h] = 0.5f; /* is added to */
  }
  fill_lengths(a, &state);
  if (c->page) {
    fill_table(a, &state);
  }
  for (int i = 0; i < c->bad; i++) {
    spoil(a, &state);
  }
  for (int s = 0; s < NUM_SLOTS; s++) {
    attention_widen(a, s);
  }
}

void attention_call_free(attention_call *a)
{
  for (int s = 0; s < NUM_SLOTS; s++) {
    free(a->narrow[s]);
    free(a->wide[s]);
  }
}

/* ---- calls ---- */

#define SHARED(a, block, wide)                                                                     \
  .q = view_of(a, block, SLOT_Q, wide), .k = view_of(a, block, SLOT_K, wide),                      \
  .v = view_of(a, block, SLOT_V, wide), .out = view_of(a, block, SLOT_OUT, wide),                  \
  .lse = view_of(a, block, SLOT_LSE, wide), .sinks = view_of(a, block, SLOT_SINKS, wide),          \
  .cu_seqlens_q = view_of(a, block, SLOT_CU_Q, wide),                                              \
  .cu_seqlens_k = view_of(a, block, SLOT_CU_K, wide),                                              \
  .key_start = view_of(a, block, SLOT_KEY_START, wide),                                            \
  .key_count = view_of(a, block, SLOT_KEY_COUNT, wide),                                            \
  .query_start = view_of(a, block, SLOT_QUERY_START, wide), .scale = 1 / sqrtf((float)(a)->c.dim), \
  .softcap = (a)->c.softcap, .window = (a)->c.window, .causal = (a)->c.causal,                     \
  .allow_tf32 = (a)->c.dtype == TG_F32

tg_attention_fwd_args attention_forward_args(const attention_call *a, void *const *block, bool wide)
{
  return (tg_attention_fwd_args){SHARED(a, block, wide),
                                 .block_table = view_of(a, block, SLOT_BLOCK_TABLE, wide)};
}

tg_attention_bwd_args attention_backward_args(const attention_call *a, void *const *block,
                                              bool wide)
{
  return (tg_attention_bwd_args){SHARED(a, block, wide),
                                 .dout = view_of(a, block, SLOT_DOUT, wide),
                                 .dq = view_of(a, block, SLOT_DQ, wide),
                                 .dk = view_of(a, block, SLOT_DK, wide),
                                 .dv = view_of(a, block, SLOT_DV, wide),
                                 .dsinks = view_of(a, block, SLOT_DSINKS, wide),
                                 .allow_nondeterministic = a->c.any_order};
}

void attention_run_forward(tg_context *ctx, tg_attention_fwd_args args)
{
  must_run(ctx, tg_attention_fwd_workspace(ctx, &args, &args.workspace_bytes));
  must_run(ctx, tg_memory_allocate(ctx, args.workspace_bytes, &args.workspace));
  must_run(ctx, tg_attention_fwd(ctx, &args));
  tg_memory_free(ctx, args.workspace);
}

void attention_run_backward(tg_context *ctx, tg_attention_bwd_args args)
{
  must_run(ctx, tg_attention_bwd_workspace(ctx, &args, &args.workspace_bytes));
  must_run(ctx, tg_memory_allocate(ctx, args.workspace_bytes, &args.workspace));
  must_run(ctx, tg_attention_bwd(ctx, &args));
  tg_memory_free(ctx, args.workspace);
}

void attention_expect(attention_call *a, tg_context *cpu)
{
  attention_run_forward(cpu, attention_forward_args(a, a->wide, true));
  memcpy(a->narrow[SLOT_LSE], a->wide[SLOT_LSE], attention_block_bytes(a, SLOT_LSE));
  const float *out = a->wide[SLOT_OUT];
  for (int64_t i = 0; i < a->elements[SLOT_OUT]; i++) {
    put_value(a, SLOT_OUT, i, out[i]);
  }
  if (!a->c.forward_only) {
    /* The forward's own results stay for the comparison: the backward gets what is rounded. */
    void *block[NUM_SLOTS];
    memcpy(block, a->wide, sizeof block);
    float *rounded = malloc(((size_t)a->elements[SLOT_OUT] + 1) * sizeof *rounded);
    for (int64_t i = 0; i < a->elements[SLOT_OUT]; i++) {
      rounded[i] = (float)tgi_load(a->narrow[SLOT_OUT], a->c.dtype, i);
    }
    block[SLOT_OUT] = rounded;
    attention_run_backward(cpu, attention_backward_args(a, block, true));
    free(rounded);
  }
}
