#include "ops/shape.h"

#include <math.h>

/* b sequences of s queries and sk keys (s), h heads, kv heads of keys (h), head_dim d, that of the
 * values vd (d). packed: all sequences' rows along one axis, s and sk their sum (qpacked: of the
 * queries alone). page: keys in blocks of that many rows. w: window; cap: softcap. any: the
 * backward's sums in any order. tf32: allow_tf32. */
#define SYNTAX                                                                                     \
  "bN_hN_[kvN_]sN_[skN_]dN[_vdN][_causal][_wN][_capN][_sink][_sinkf32][_packed][_qpacked][_keys]"  \
  "[_start][_pageN][_nolse][_nodq][_nodk][_nodv][_nodsinks][_dsinkf32][_any][_tf32]"

const char tgi_attention_fwd_syntax[] = SYNTAX;
const char tgi_attention_bwd_syntax[] = SYNTAX;

typedef struct words {
  int64_t batch, heads, kv_heads, nq, extent, head_dim, v_dim, page;
  bool packed_q, packed_k;
} words;

static words read_words(tgi_shape *s)
{
  words w = {.batch = tgi_shape_number(s, "b", 1), .heads = tgi_shape_number(s, "h", 1)};
  w.kv_heads = tgi_shape_number(s, "kv", w.heads);
  w.nq = tgi_shape_number(s, "s", 1);
  w.extent = tgi_shape_number(s, "sk", w.nq);
  w.head_dim = tgi_shape_number(s, "d", 64);
  w.v_dim = tgi_shape_number(s, "vd", w.head_dim);
  w.page = tgi_shape_number(s, "page", 0);
  w.packed_k = tgi_shape_flag(s, "packed");
  w.packed_q = tgi_shape_flag(s, "qpacked") || w.packed_k;
  return w;
}

static tg_tensor optional_ints(bool present, int64_t n)
{
  tg_tensor t = tg_tensor_1d(NULL, TG_I32, n);
  return present ? t : (tg_tensor){0};
}

static tg_tensor sinks_view(tgi_shape *s, int64_t heads)
{
  const bool wide = tgi_shape_flag(s, "sinkf32");
  const bool present = tgi_shape_flag(s, "sink") || wide;
  tg_tensor t = tg_tensor_1d(NULL, wide ? TG_F32 : s->dtype, heads);
  return present ? t : (tg_tensor){0};
}

/* Fields that the directions share, whatever the struct is. */
#define FILL_SHARED(a, s, w)                                                                       \
  do {                                                                                             \
    const int64_t qb = (w).packed_q ? 1 : (w).batch, kb = (w).packed_k ? 1 : (w).batch;            \
    (a)->q = tg_tensor_4d(NULL, (s)->dtype, qb, (w).nq, (w).heads, (w).head_dim);                  \
    (a)->k = tg_tensor_4d(NULL, (s)->dtype, kb, (w).extent, (w).kv_heads, (w).head_dim);           \
    (a)->v = tg_tensor_4d(NULL, (s)->dtype, kb, (w).extent, (w).kv_heads, (w).v_dim);              \
    (a)->out = tg_tensor_4d(NULL, (s)->dtype, qb, (w).nq, (w).heads, (w).v_dim);                   \
    if (!tgi_shape_flag(s, "nolse")) {                                                             \
      const int64_t lse_shape[3] = {qb, (w).heads, (w).nq};                                        \
      (a)->lse = tg_tensor_view(NULL, TG_F32, 3, lse_shape);                                       \
    }                                                                                              \
    (a)->sinks = sinks_view(s, (w).heads);                                                         \
    (a)->cu_seqlens_q = optional_ints((w).packed_q, (w).batch + 1);                                \
    (a)->cu_seqlens_k = optional_ints((w).packed_k, (w).batch + 1);                                \
    const bool keys = tgi_shape_flag(s, "keys");                                                   \
    (a)->key_start = optional_ints(keys, (w).batch);                                               \
    (a)->key_count = optional_ints(keys, (w).batch);                                               \
    (a)->query_start = optional_ints(tgi_shape_flag(s, "start"), (w).batch);                       \
    (a)->scale = 1.0f / sqrtf((float)(w).head_dim);                                                \
    (a)->softcap = (float)tgi_shape_number(s, "cap", 0);                                           \
    (a)->window = tgi_shape_i32(s, "w", 0);                                                        \
    (a)->causal = tgi_shape_flag(s, "causal");                                                     \
    (a)->allow_tf32 = tgi_shape_flag(s, "tf32");                                                   \
  } while (0)

void tgi_attention_fwd_shape(tgi_shape *s, tg_attention_fwd_args *a)
{
  const words w = read_words(s);
  FILL_SHARED(a, s, w);
  if (w.page > 0) {
    const int64_t blocks = (w.extent + w.page - 1) / w.page;
    a->block_table = tg_tensor_2d(NULL, TG_I32, w.batch, blocks);
    int64_t all = 0;
    if (__builtin_mul_overflow(w.batch, blocks, &all) || all > INT64_MAX - 3) {
      all = INT64_MAX - 3; /* too many bytes, which tgi_shape_fill finds */
    }
    a->k.shape[0] = a->v.shape[0] = all + 3; /* some blocks belong to no sequence */
    a->k.shape[1] = a->v.shape[1] = w.page;
  }
  (void)tgi_shape_flag(s, "nodq"), (void)tgi_shape_flag(s, "nodk");
  (void)tgi_shape_flag(s, "nodv"), (void)tgi_shape_flag(s, "nodsinks");
  (void)tgi_shape_flag(s, "dsinkf32"), (void)tgi_shape_flag(s, "any");
}

void tgi_attention_bwd_shape(tgi_shape *s, tg_attention_bwd_args *a)
{
  const words w = read_words(s);
  FILL_SHARED(a, s, w);
  a->dout = a->out;
  if (!tgi_shape_flag(s, "nodq")) {
    a->dq = a->q;
  }
  if (!tgi_shape_flag(s, "nodk")) {
    a->dk = a->k;
  }
  if (!tgi_shape_flag(s, "nodv")) {
    a->dv = a->v;
  }
  a->allow_nondeterministic = tgi_shape_flag(s, "any");
  const bool wide = tgi_shape_flag(s, "dsinkf32");
  if (!tgi_shape_flag(s, "nodsinks")) {
    a->dsinks = a->sinks;
  }
  if (wide) {
    a->dsinks.dtype = TG_F32;
  }
}

__extension__ typedef __int128 wide;

/* Sum of first, first + 1, ..., last, each of them clamped to [0, most]. */
static wide sum_clamped(int64_t first, int64_t last, int64_t most)
{
  const int64_t low = first > 0 ? first : 0, top = last < most ? last : most;
  const wide inside = low <= top ? (wide)(low + top) * (top - low + 1) / 2 : 0;
  const int64_t above = last > most ? last - (first > most ? first - 1 : most) : 0;
  return inside + (wide)above * most;
}

/* Visible pairs of one head, as far as shapes and scalars determine them: sequences of equal
 * length, all rows keys. The query at position p sees the keys from p - window + 1 on, up to p if
 * causal, else up to p + window - 1. */
static double visible_pairs(const tg_tensor *q, const tg_tensor *cu_q, const tg_tensor *cu_k,
                            int64_t extent, int64_t window, bool causal)
{
  const int64_t batch = tgi_present(cu_q) ? cu_q->shape[0] - 1 : q->shape[0];
  const int64_t nq = tgi_present(cu_q) && batch > 0 ? q->shape[1] / batch : q->shape[1];
  const int64_t keys = tgi_present(cu_k) && batch > 0 ? extent / batch : extent;
  const int64_t first = keys - nq, last = keys - 1, reach = causal ? 1 : window;
  const wide ends =
      reach > 0 ? sum_clamped(first + reach, last + reach, keys) : (wide)(nq > 0 ? nq : 0) * keys;
  const wide begins =
      window > 0 ? sum_clamped(first - window + 1, last - window + 1, keys) : (wide)0;
  return (double)(ends - begins) * (double)batch;
}

void tgi_attention_fwd_cost(const tg_attention_fwd_args *a, tgi_cost *cost)
{
  const int64_t blocks = tgi_present(&a->block_table) ? a->block_table.shape[1] : 1;
  const double pairs = visible_pairs(&a->q, &a->cu_seqlens_q, &a->cu_seqlens_k,
                                     a->k.shape[1] * blocks, a->window, a->causal);
  cost->flops = 2.0 * pairs * (double)a->q.shape[2] * (double)(a->q.shape[3] + a->v.shape[3]);
}

void tgi_attention_bwd_cost(const tg_attention_bwd_args *a, tgi_cost *cost)
{
  const double pairs =
      visible_pairs(&a->q, &a->cu_seqlens_q, &a->cu_seqlens_k, a->k.shape[1], a->window, a->causal);
  cost->flops =
      2.0 * pairs * (double)a->q.shape[2] * (double)(3 * a->q.shape[3] + 2 * a->v.shape[3]);
}
