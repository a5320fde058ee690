/* A GPT's forward pass with ten calls of ops: from token ids to logits, one layer, random weights.
 * What a model is made of, without a framework around it. */
#include <stdio.h>
#include <stdlib.h>
#include <tegula/tegula.h>

enum { kTokens = 6, kVocab = 16, kWidth = 32, kHeads = 4, kHead = kWidth / kHeads };

static tg_context *ctx;

static void check(tg_status status)
{
  if (status != TG_OK) {
    fprintf(stderr, "%s\n", tg_context_message(ctx));
    exit(1);
  }
}

/* An f32 matrix for results. */
static tg_tensor room(int64_t rows, int64_t cols)
{
  static float all[1 << 16];
  static int64_t used;
  float *memory = all + used;
  used += rows * cols;
  return tg_tensor_2d(memory, TG_F32, rows, cols);
}

/* One of random numbers from -scale to scale. Each statement makes at most one, so that the order
 * in which C evaluates arguments does not matter. */
static tg_tensor matrix(int64_t rows, int64_t cols, float scale)
{
  static uint32_t state = 1;
  const tg_tensor t = room(rows, cols);
  for (int64_t i = 0; i < rows * cols; i++) {
    state = state * 1664525u + 1013904223u;
    ((float *)t.data)[i] = scale * ((float)(state >> 8) / (float)(1 << 23) - 1);
  }
  return t;
}

/* A vector of ones. */
static tg_tensor vector(int64_t n)
{
  tg_tensor t = room(1, n);
  for (int64_t i = 0; i < n; i++) {
    ((float *)t.data)[i] = 1;
  }
  return tg_tensor_1d(t.data, TG_F32, n);
}

/* y = x weight^T, then the activation, then plus the residual. */
static tg_tensor linear(tg_tensor x, tg_tensor weight, tg_activation activation, tg_tensor residual)
{
  tg_linear_fwd_args a = {.x = x,
                          .weight = weight,
                          .residual = residual,
                          .y = room(x.shape[0], weight.shape[0]),
                          .activation = activation};
  check(tg_linear_fwd_workspace(ctx, &a, &a.workspace_bytes));
  a.workspace = aligned_alloc(256, (a.workspace_bytes / 256 + 1) * 256);
  check(tg_linear_fwd(ctx, &a));
  free(a.workspace);
  return a.y;
}

static tg_tensor norm(tg_tensor x)
{
  tg_layer_norm_fwd_args a = {
      .x = x, .weight = vector(kWidth), .y = room(x.shape[0], kWidth), .eps = 1e-5f};
  check(tg_layer_norm_fwd(ctx, &a));
  return a.y;
}

/* Columns from `first` on as [1, tokens, heads, head]: a view, nothing is copied. */
static tg_tensor heads(tg_tensor packed, int64_t first)
{
  float *data = (float *)packed.data + first;
  tg_tensor t = tg_tensor_4d(data, TG_F32, 1, kTokens, kHeads, kHead);
  t.stride[0] = kTokens * packed.shape[1];
  t.stride[1] = packed.shape[1];
  t.stride[2] = kHead;
  t.stride[3] = 1;
  return t;
}

static tg_tensor attend(tg_tensor qkv)
{
  const tg_tensor out = room(kTokens, kWidth);
  tg_attention_fwd_args a = {.q = heads(qkv, 0),
                             .k = heads(qkv, kWidth),
                             .v = heads(qkv, 2 * kWidth),
                             .out = heads(out, 0),
                             .scale = 0.35355339f, /* 1 / sqrt(kHead) */
                             .causal = true};
  check(tg_attention_fwd_workspace(ctx, &a, &a.workspace_bytes));
  a.workspace = aligned_alloc(256, (a.workspace_bytes / 256 + 1) * 256);
  check(tg_attention_fwd(ctx, &a));
  free(a.workspace);
  return out;
}

int main(void)
{
  static const tg_tensor none = {0};
  int32_t ids[kTokens] = {3, 1, 4, 1, 5, 9};
  tg_error error;
  if (tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &ctx, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  const tg_tensor table = matrix(kVocab, kWidth, 1);
  tg_embedding_fwd_args embed = {.ids = tg_tensor_1d(ids, TG_I32, kTokens),
                                 .table = table,
                                 .positions = matrix(kTokens, kWidth, 0.1f),
                                 .y = room(kTokens, kWidth),
                                 .seq_len = kTokens};
  check(tg_embedding_fwd(ctx, &embed)); /* 1 */
  const tg_tensor x = embed.y;
  const tg_tensor qkv = linear(norm(x), matrix(3 * kWidth, kWidth, 0.3f), 0, none); /* 2, 3 */
  const tg_tensor y = linear(attend(qkv), matrix(kWidth, kWidth, 0.3f), 0, x);      /* 4, 5 */
  const tg_tensor up =
      linear(norm(y), matrix(4 * kWidth, kWidth, 0.3f), TG_ACTIVATION_GELU_TANH, none); /* 6, 7 */
  const tg_tensor z = linear(up, matrix(kWidth, 4 * kWidth, 0.1f), 0, y);               /* 8 */
  const tg_tensor logits = linear(norm(z), matrix(kVocab, kWidth, 0.3f), 0, none);      /* 9, 10 */
  for (int t = 0; t < kTokens; t++) {
    const float *row = (const float *)logits.data + t * kVocab;
    int best = 0;
    for (int j = 1; j < kVocab; j++) {
      best = row[j] > row[best] ? j : best;
    }
    printf("token %d: next %2d, logit %.2f\n", ids[t], best, (double)row[best]);
  }
  tg_context_destroy(ctx);
  return 0;
}

/* Prints:
 * token 3: next 11, logit 2.29
 * token 1: next  8, logit 1.77
 * token 4: next  8, logit 1.64
 * token 1: next 12, logit 1.61
 * token 5: next  8, logit 1.42
 * token 9: next  8, logit 1.73
 */
