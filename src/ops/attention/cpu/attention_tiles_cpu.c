/* Attention forward on the CPU: a block of rows against tiles of keys.
 *
 * Method     Running softmax (arXiv:1805.02867) over tiles of 64 keys (arXiv:2307.08691), with the
 *            rows of the block along the lanes: scores s[key][row] = K Q^T; maximum, exponential
 *            and sum run down the columns without a horizontal step; o[c][row] = o * factor + V^T
 *            p. Only the queries and the result are transposed, once per block.
 * Work       Tiles that no row sees are skipped. A tile that some row sees only in part is cut into
 *            vectors of rows, each with the keys that it needs.
 * Bound      Arithmetic: 2 fused multiply-adds per pair and element of the heads, besides about 16
 *            vector operations per vector of pairs for the softmax.
 */
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/attention/cpu/attention_parts.h"

typedef struct tiles {
  const attention_block *k;
  const tg_attention_fwd_args *a;
  int64_t q_pitch, v_pitch;
  float *q;             /* panels of scaled queries [kPanels][q_pitch][kPanel] */
  float *keys, *values; /* dense tiles */
  float *s;             /* [kTileKeys][kPanel] */
  float *o;             /* panels [kPanels][v_pitch][kPanel] */
  held_rows held;       /* values removed from the tile */
  float factor[kPanel];
  attention_sums *to;
} tiles;

int64_t TGI_KERNEL(attention_tiles_scratch)(const tgi_attention_layout *l)
{
  const int64_t q_pitch = padded(l->head_dim), v_pitch = padded(l->v_dim);
  return (2 * kBlockRows + kTileKeys) * q_pitch + (kBlockRows + kTileKeys) * v_pitch +
         kTileKeys * kPanel;
}

/* Running softmax of one vector of rows: s[j0..j1), in place. */
TGI_INLINE void softmax_column(const strip *p, float *s, float cap, bool masked, bool capped,
                               float *m, float *l, float *factor)
{
  const vf none = vf_set1(-INFINITY), c = vf_set1(cap), inverse = vf_set1(1.0f / cap);
  const vf old = vf_load_f32(m);
  vf greatest[4] = {old, old, old, old};
  for (int64_t j = p->j0; j < p->j1; j += 4) {
    TGI_UNROLLED(i, 4)
    {
      float *at_j = s + (j + i) * kPanel;
      vf v = vf_load_f32(at_j);
      if (capped) {
        v = vf_tanh(v * inverse) * c;
      }
      if (masked) {
        v = where_visible(p, j + i, v, none);
      }
      if (capped || masked) {
        vf_store_f32(at_j, v);
      }
      greatest[i] =
          vf_max(v, greatest[i]); /* the maximum drops a NaN, which then shows in the sum */
    }
  }
  const vf now = vf_max(vf_max(greatest[0], greatest[1]), vf_max(greatest[2], greatest[3]));
  const vf base = vf_select(vf_lt(none, now), now, vf_zero()); /* nothing seen yet: e^-inf = 0 */
  const vf scale = vf_exp(old - base);
  vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  for (int64_t j = p->j0; j < p->j1; j += 4) {
    TGI_UNROLLED(i, 4)
    {
      float *at_j = s + (j + i) * kPanel;
      const vf e = vf_exp(vf_load_f32(at_j) - base);
      vf_store_f32(at_j, e);
      sum[i] = sum[i] + e;
    }
  }
  vf_store_f32(m, now);
  vf_store_f32(l, vf_fma(vf_load_f32(l), scale, (sum[0] + sum[1]) + (sum[2] + sum[3])));
  vf_store_f32(factor, scale);
}

static void softmax_strip(tiles *t, const strip *p)
{
  const float cap = t->a->softcap;
  for (int64_t v = 0; v < p->vectors; v++) {
    const int64_t lane = v * TGI_LANES, row = p->row + lane;
    float *s = t->s + p->row % kPanel + lane, *m = t->to->m + row, *l = t->to->l + row;
    if (p->masked && cap > 0) {
      softmax_column(p, s, cap, true, true, m, l, t->factor + lane);
    } else if (p->masked) {
      softmax_column(p, s, 1, true, false, m, l, t->factor + lane);
    } else if (cap > 0) {
      softmax_column(p, s, cap, false, true, m, l, t->factor + lane);
    } else {
      softmax_column(p, s, 1, false, false, m, l, t->factor + lane);
    }
  }
}

/* o += p v for values that were removed from the tile, in the lanes that see them. */
static void add_held(const tiles *t, const strip *p, int64_t tile)
{
  for (int64_t h = 0; h < t->held.count; h++) {
    const int64_t j = t->held.index[h];
    const void *value = key_at(t->k, map_keys(t->k, &t->a->v), tile + j);
    if (j < p->j0 || j >= p->j1) {
      continue;
    }
    for (int64_t c = 0; c < t->k->l->v_dim; c++) {
      const vf v = vf_set1((float)tgi_load(value, t->a->v.dtype, c));
      float *o = t->o + p->row / kPanel * kPanel * t->v_pitch + c * kPanel + p->row % kPanel;
      for (int64_t i = 0; i < p->vectors * TGI_LANES; i += TGI_LANES) {
        const vf e = vf_load_f32(t->s + j * kPanel + p->row % kPanel + i);
        const vf old = vf_load_f32(o + i), sum = vf_fma(e, v, old);
        vf_store_f32(o + i, p->masked ? where_visible(p, j, sum, old) : sum);
      }
    }
  }
}

static void attend_strip(void *arg, const strip *p, int64_t tile)
{
  tiles *t = arg;
  const int64_t panel = p->row / kPanel * kPanel, lane = p->row % kPanel;
  tgi_tile_multiply((tgi_tile_product){.a = t->keys + p->j0 * t->q_pitch,
                                       .a_row = t->q_pitch,
                                       .a_step = 1,
                                       .b = t->q + panel * t->q_pitch + lane,
                                       .b_step = kPanel,
                                       .c = t->s + p->j0 * kPanel + lane,
                                       .c_row = kPanel,
                                       .rows = p->j1 - p->j0,
                                       .n = t->k->l->head_dim,
                                       .start = TGI_TILE_ZERO},
                    p->vectors);
  softmax_strip(t, p);
  tgi_tile_multiply((tgi_tile_product){.a = t->values + p->j0 * t->v_pitch,
                                       .a_row = 1,
                                       .a_step = t->v_pitch,
                                       .b = t->s + p->j0 * kPanel + lane,
                                       .b_step = kPanel,
                                       .c = t->o + panel * t->v_pitch + lane,
                                       .c_row = kPanel,
                                       .rows = round_up(t->k->l->v_dim, TGI_TILE_ROWS),
                                       .n = p->j1 - p->j0,
                                       .start = TGI_TILE_SCALE,
                                       .factor = t->factor},
                    p->vectors);
  if (t->held.count > 0) {
    add_held(t, p, tile);
  }
}

void TGI_KERNEL(attention_tiles)(const attention_block *k, const tg_attention_fwd_args *a,
                                 int64_t begin, int64_t end, float *scratch, attention_sums *to)
{
  const int64_t q_pitch = padded(k->l->head_dim), v_pitch = padded(k->l->v_dim);
  tiles t = {.k = k, .a = a, .q_pitch = q_pitch, .v_pitch = v_pitch, .to = to};
  t.q = scratch;
  t.o = t.q + kBlockRows * q_pitch;
  t.keys = t.o + kBlockRows * v_pitch;
  t.values = t.keys + kTileKeys * q_pitch;
  t.s = t.values + kTileKeys * v_pitch;
  float *rows = t.s + kTileKeys * kPanel;
  load_rows(k, &a->q, a->scale, rows);
  rows_to_panels(rows, q_pitch, k->rows, t.q);
  memset(t.o, 0, (size_t)(kBlockRows * v_pitch) * sizeof *t.o);
  for (int64_t r = 0; r < kBlockRows; r++) {
    to->m[r] = -INFINITY;
    to->l[r] = 0;
  }
  end = tgi_min_i64(end, k->end);
  for (int64_t tile = max_i64(begin, k->begin / kTileKeys * kTileKeys); tile < end;
       tile += kTileKeys) {
    const int64_t keys = tgi_min_i64(kTileKeys, k->s.count - tile);
    load_keys(k, &a->k, tile, keys, t.keys);
    t.held.count = 0;
    if (load_keys(k, &a->v, tile, keys, t.values)) {
      hold_rows(t.values, keys, v_pitch, &t.held);
    }
    each_strip(k, tile, keys, attend_strip, &t);
  }
  panels_to_rows(t.o, v_pitch, k->rows, to->rows);
}
