/** Rotary position embedding, forward and backward, and its cos and sin tables. */
#ifndef TEGULA_ROPE_H
#define TEGULA_ROPE_H

#include "context.h"
#include "rounding.h"
#include "tensor.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which two elements of a head form a pair i, for i < rotary_dim / 2. */
typedef enum tg_rope_pairing {
  TG_ROPE_HALVES = 1,      /* i and i + rotary_dim / 2: Llama, Qwen3, GPT-OSS */
  TG_ROPE_INTERLEAVED = 2, /* 2 i and 2 i + 1: GPT-J */
} tg_rope_pairing;

/*
 * Layout of the tables: one set of rules for every op that rotates.
 *
 * Rows   Token t of sequence b reads row t + position_offset of cos[b] and sin[b], or of cos[0] and
 *        sin[0] if the first extent is 1. The tables may have more rows.
 * Width  cos and sin have equal shapes. Width rotary_dim: element j of a head is multiplied by
 *        cos[j] and its partner by sin[j], so the elements of a pair may have different values.
 *        Width rotary_dim / 2: both elements of pair i read cos[i] and sin[i].
 */

typedef struct tg_rope_fwd_args {
  tg_tensor q, k, cos, sin, q_out, k_out;
  int64_t rotary_dim;
  int64_t position_offset;
  tg_rope_pairing pairing;
  tg_rounding rounding;
} tg_rope_fwd_args;

/**
 * Rotary position embedding, forward. For each head x of q and of k and each pair (a, b) of its
 * elements:
 *
 *   y[a] = x[a] * cos[a] - x[b] * sin[a]
 *   y[b] = x[b] * cos[b] + x[a] * sin[b]
 *   y[j] = x[j]                            for j >= rotary_dim
 *
 *   q      in   [batch, seq, q_heads, head_dim]   f32|f16|bf16       last axis contiguous
 *   k      in   [batch, seq, kv_heads, head_dim]  dtype of q         optional; last axis contiguous
 *   cos    in   [1 or batch, table_seq, width]    dtype of q, or f32 last axis contiguous
 *   sin    in   shape and dtype of cos                               last axis contiguous
 *   q_out  out  shape and dtype of q              last axis contiguous; may alias q
 *   k_out  out  shape and dtype of k              given with k; last axis contiguous; may alias k
 *   rotary_dim       even, 0 .. head_dim; 0: head_dim
 *   position_offset  >= 0; position_offset + seq <= table_seq
 *   pairing          required
 *   rounding         required
 *
 * q and k may be views into one packed projection, or [batch, heads, seq, head_dim] tensors viewed
 * through strides: only the last axis needs stride 1, in the outputs too. width is rotary_dim or
 * rotary_dim / 2.
 *
 * Math       Each product and each sum is one f32 operation (ref: f64). HF rounds each product and
 *            the sum to the dtype of q, whatever the tables' dtype. ONCE rounds only the sum. NaN
 *            and infinity affect only their own pair.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: the tables have fewer rows than seq), BAD_DTYPE, BAD_ARGUMENT
 *            (rotary_dim, position_offset, pairing, rounding; k without k_out or the reverse; an
 *            overlap that is not listed above), UNSUPPORTED.
 * Source     Su et al. 2021, arXiv:2104.09864, eq. 34.
 */
TG_API tg_status tg_rope_fwd(tg_context *ctx, const tg_rope_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_rope_fwd_workspace(const tg_context *ctx, const tg_rope_fwd_args *args,
                                       size_t *bytes);

typedef struct tg_rope_bwd_args {
  tg_tensor dq_out, dk_out, cos, sin, dq, dk;
  int64_t rotary_dim;
  int64_t position_offset;
  tg_rope_pairing pairing;
} tg_rope_bwd_args;

/**
 * Rotary position embedding, backward: the transpose of the forward's linear map.
 *
 *   dx[a] = dy[a] * cos[a] + dy[b] * sin[b]
 *   dx[b] = dy[b] * cos[b] - dy[a] * sin[a]
 *   dx[j] = dy[j]                            for j >= rotary_dim
 *
 *   dq_out    in   [batch, seq, q_heads, head_dim]   f32|f16|bf16     last axis contiguous
 *   dk_out    in   [batch, seq, kv_heads, head_dim]  dtype of dq_out  optional; last axis
 *                                                                     contiguous
 *   cos       in   [1 or batch, table_seq, width]    dtype of dq_out, or f32; last axis
 *                                                    contiguous
 *   sin       in   shape and dtype of cos            last axis contiguous
 *   dq        out  shape and dtype of dq_out         last axis contiguous; may alias dq_out
 *   dk        out  shape and dtype of dk_out         given with dk_out; last axis contiguous; may
 *                                                    alias dk_out
 *   rotary_dim, position_offset, pairing  those of the forward
 *
 * Math       f32, one rounding per result (ref: f64). Both roundings of the forward have this
 *            gradient.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: the tables have fewer rows than seq), BAD_DTYPE, BAD_ARGUMENT
 *            (rotary_dim, position_offset, pairing; dk_out without dk or the reverse; an overlap
 *            that is not listed above), UNSUPPORTED.
 * Source     transpose of the forward.
 */
TG_API tg_status tg_rope_bwd(tg_context *ctx, const tg_rope_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_rope_bwd_workspace(const tg_context *ctx, const tg_rope_bwd_args *args,
                                       size_t *bytes);

/** How the frequencies of the tables are computed: `rope_type` of a Hugging Face config. */
typedef enum tg_rope_type {
  TG_ROPE_DEFAULT = 1, /* Su et al. 2021, arXiv:2104.09864 */
  TG_ROPE_LINEAR = 2,  /* Chen et al. 2023, arXiv:2306.15595 */
  TG_ROPE_DYNAMIC = 3, /* a larger theta past max_position_embeddings ("NTK-aware") */
  TG_ROPE_LLAMA3 = 4,  /* Llama team 2024, arXiv:2407.21783: low frequencies are divided */
  TG_ROPE_YARN = 5,    /* Peng et al. 2023, arXiv:2309.00071 */
} tg_rope_type;

/**
 * The names are those of `rope_parameters` in a Hugging Face config. Fields of other types are
 * ignored.
 */
typedef struct tg_rope_parameters {
  tg_rope_type type;
  int64_t rotary_dim; /* even, > 0; DYNAMIC: > 2 */
  double theta;       /* > 1 */
  double factor;      /* > 0; all but DEFAULT */

  int64_t max_position_embeddings; /* > 0; DYNAMIC */
  int64_t seq_len;                 /* >= 0; DYNAMIC: current length, in tokens; used where it
                                      exceeds max_position_embeddings */

  int64_t original_max_position_embeddings; /* > 0; LLAMA3, YARN */
  double low_freq_factor;                   /* > 0; LLAMA3 */
  double high_freq_factor;                  /* > low_freq_factor; LLAMA3 */

  double beta_fast, beta_slow;   /* > 0; YARN; 32 and 1 if a config has none */
  double attention_factor;       /* >= 0; YARN: multiplies both tables; 0: see tg_rope_table */
  double mscale, mscale_all_dim; /* finite; YARN */
  bool truncate;                 /* YARN: round the bounds; true if a config has none */
} tg_rope_parameters;

/**
 * Writes the rows of the tables for the positions first_position, first_position + 1, ...
 *
 *   angle[t,i] = (first_position + t) * inv_freq[i]          radians; i < rotary_dim / 2
 *   cos[0,t,j] = scale * cos(angle[t,i]),  sin likewise      scale: 1; YARN: attention_factor
 *
 *   DEFAULT  inv_freq[i] = theta^(-2 i / rotary_dim)
 *   LINEAR   that / factor
 *   DYNAMIC  DEFAULT's for theta * (factor * n / max - (factor - 1))^(rotary_dim / (rotary_dim-2)),
 *            where max = max_position_embeddings and n = max(seq_len, max)
 *   LLAMA3   wavelengths 2 pi / f above original / low_freq_factor: f / factor; below original /
 *            high_freq_factor: f; between: (1 - s) * f / factor + s * f with
 *            s = (original * f / (2 pi) - low_freq_factor) / (high_freq_factor - low_freq_factor)
 *   YARN     f / factor * r[i] + f * (1 - r[i]); r is a ramp from 0 to 1 between the dimensions
 *            that turn beta_fast and beta_slow times over original_max_position_embeddings, bounds
 *            rounded outwards if `truncate`. With attention_factor 0 it is m(mscale) /
 *            m(mscale_all_dim) if both are not 0, else m(1), where m(s) = 0.1 s ln(factor) + 1 for
 *            factor > 1, else 1
 *
 *   parameters      see tg_rope_parameters
 *   pairing         that of the op that reads the tables; orders tables of width rotary_dim
 *   first_position  >= 0; the last position is <= 2^24: f32 is exact up to there
 *   cos  out  [1, seq, width]         f32|f16|bf16; last axis contiguous
 *   sin  out  shape and dtype of cos  last axis contiguous; no overlap with cos
 *
 * width is rotary_dim (HALVES: j = i and i + rotary_dim / 2; INTERLEAVED: j = 2 i and 2 i + 1) or
 * rotary_dim / 2 (j = i). seq may be 0.
 *
 * Math       The steps and precisions are those of Hugging Face transformers on a CPU. inv_freq and
 *            angle are f32, with a rounding after each operation. scale times the f32 cosine is
 *            f32, and is rounded once to the tables' dtype. Bounds, the attention factor and
 *            DYNAMIC's theta up to max_position_embeddings are f64. Powers, cosines and sines are
 *            computed in f64 and rounded to f32; PyTorch's may differ by 1 ulp.
 * Context    none; no allocation; thread-safe. `error` may be NULL.
 * Errors     BAD_ARGUMENT (parameters, pairing, first_position, memory), BAD_SHAPE, BAD_DTYPE;
 *            nothing is then written.
 * Source     that of each tg_rope_type; DEFAULT: Su et al. 2021, arXiv:2104.09864.
 */
TG_API tg_status tg_rope_table(const tg_rope_parameters *parameters, tg_rope_pairing pairing,
                               int64_t first_position, tg_tensor cos, tg_tensor sin,
                               tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
