/** How a call of attention_naive is cut into slices whose scores fit memory, and the products of
 * one (attention_naive.cu). */
#ifndef TGI_OPS_ATTENTION_NAIVE_SLICES_CUH
#define TGI_OPS_ATTENTION_NAIVE_SLICES_CUH

#include "cuda/gemm/gemm_tile.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int64_t kSliceBytes = 256 << 20;
constexpr int kScoreAlign = 8; /* floats: rows start where 16-byte loads may */

/** Heads of some sequences: the scores lie [sequences][kv_heads * group][nq][pitch]. */
struct slice {
  int64_t batch, kv_heads, group, nq, keys, pitch; /* of the call */
  int64_t sequences, heads;                        /* sequences; kv heads of each */
};

inline slice plan_slice(const tg_tensor *q, const tg_tensor *k)
{
  slice s = {};
  s.batch = q->shape[0];
  s.kv_heads = k->shape[2];
  s.group = q->shape[2] / k->shape[2];
  s.nq = q->shape[1];
  s.keys = k->shape[1];
  s.pitch = divide_up(s.keys, kScoreAlign) * kScoreAlign;
  const int64_t bytes = s.group * s.nq * s.pitch * (int64_t)sizeof(float);
  const int64_t most = bytes > 0 ? kSliceBytes / bytes : s.batch * s.kv_heads;
  s.heads = most < 1 ? 1 : most < s.kv_heads ? most : s.kv_heads;
  s.sequences = most / s.kv_heads < 1 ? 1 : most / s.kv_heads;
  s.sequences = s.sequences < s.batch ? s.sequences : s.batch;
  return s;
}

inline size_t whole_blocks(int64_t floats)
{
  return ((size_t)floats * sizeof(float) + 255) / 256 * 256;
}

inline size_t score_bytes(const slice &s)
{
  return whole_blocks(s.sequences * s.heads * s.group * s.nq * s.pitch);
}

/** One slice of the call: sequences b .. and kv heads h .. */
struct place {
  int64_t b, h, sequences, heads;
};

/** Calls work(place) for every slice until one fails. */
template <typename Work> tg_status each_slice(const slice &s, const Work &work)
{
  tg_status status = TG_OK;
  for (int64_t b = 0; b < s.batch && status == TG_OK; b += s.sequences) {
    for (int64_t h = 0; h < s.kv_heads && status == TG_OK; h += s.heads) {
      const int64_t sequences = s.batch - b < s.sequences ? s.batch - b : s.sequences;
      const int64_t heads = s.kv_heads - h < s.heads ? s.kv_heads - h : s.heads;
      status = work(place{b, h, sequences, heads});
    }
  }
  return status;
}

/* ---- operands ---- */

inline const char *head_at(const tg_tensor *t, int64_t b, int64_t head)
{
  const int64_t i = b * tgi_stride(t, 0) + head * tgi_stride(t, 2);
  return t->data ? static_cast<const char *>(t->data) + i * (int64_t)tg_dtype_bytes(t->dtype)
                 : nullptr;
}

/** Rows of heads from `head` on, one in `step`, as [rows, dim], or turned. */
inline gemm_operand rows_of(const tg_tensor *t, const place &p, int64_t head, int64_t step,
                            bool turned)
{
  gemm_operand o;
  o.data = head_at(t, p.b, head);
  o.dtype = t->dtype;
  o.row_step = turned ? 1 : tgi_stride(t, 1);
  o.col_step = turned ? tgi_stride(t, 1) : 1;
  o.batch_step = tgi_stride(t, 0);
  o.batch_step2 = step * tgi_stride(t, 2);
  return o;
}

/** The slice's scores as [nq, keys], of all heads; or turned, of member `member` of each group. */
inline gemm_operand scores_of(const slice &s, const place &p, float *scores)
{
  gemm_operand o;
  o.data = scores;
  o.dtype = TG_F32;
  o.row_step = s.pitch;
  o.batch_step = p.heads * s.group * s.nq * s.pitch;
  o.batch_step2 = s.nq * s.pitch;
  return o;
}

inline gemm_operand turned_scores(const slice &s, const place &p, float *scores, int64_t member)
{
  gemm_operand o = scores_of(s, p, scores + member * s.nq * s.pitch);
  o.row_step = 1;
  o.col_step = s.pitch;
  o.batch_step2 *= s.group;
  return o;
}

/** scores = X Y^T, for q and k or for dout and v. */
inline gemm_call score_product(const slice &s, const place &p, const tg_tensor *x,
                               const tg_tensor *y, float *scores)
{
  gemm_call c;
  c.m = s.nq;
  c.n = s.keys;
  c.k = x->shape[3];
  c.outer = p.sequences;
  c.inner = p.heads * s.group;
  c.a = rows_of(x, p, p.h * s.group, 1, false);
  c.b = rows_of(y, p, p.h, 1, true);
  c.b.share = s.group;
  const gemm_operand to = scores_of(s, p, scores);
  c.c = scores;
  c.c_row_step = to.row_step;
  c.c_batch_step = to.batch_step;
  c.c_batch_step2 = to.batch_step2;
  return c;
}

/** to = scores Y, for out and v or for dq and k. */
inline gemm_call row_product(const slice &s, const place &p, float *scores, const tg_tensor *y,
                             const tg_tensor *to)
{
  gemm_call c;
  c.m = s.nq;
  c.n = y->shape[3];
  c.k = s.keys;
  c.outer = p.sequences;
  c.inner = p.heads * s.group;
  c.a = scores_of(s, p, scores);
  c.b = rows_of(y, p, p.h, 1, false);
  c.b.share = s.group;
  c.c = const_cast<char *>(head_at(to, p.b, p.h * s.group));
  c.c_dtype = to->dtype;
  c.c_row_step = tgi_stride(to, 1);
  c.c_batch_step = tgi_stride(to, 0);
  c.c_batch_step2 = tgi_stride(to, 2);
  return c;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
