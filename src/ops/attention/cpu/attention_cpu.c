/* Attention forward on the CPU: the plan, the loop over blocks of rows, and the final division.
 *
 * Work       A task is a block of rows of one kv head (attention_block.h). A sequence's last blocks
 *            come first, since a causal mask gives them most keys. Where a sequence's rows fit one
 *            block (decoding), its keys are split (split-KV): each split is a task that writes
 *            partial sums, and a second loop combines them in order. With few rows a split covers
 *            all kv heads. Blocks and splits depend on the problem alone.
 * Method     Running softmax (arXiv:1805.02867); attention_tiles_cpu.c and attention_few_cpu.c.
 */
#include "cpu/exp.h"
#include "ops/attention/cpu/attention_parts.h"

#include <stdio.h>

enum {
  kSplitKeys = 512,
  kChunkProducts = 1 << 15,
  kMinFewKeys = 512, /* keys of all heads in a split of few rows, */
  kMaxFewKeys = 8192,
  kFewSplits = 16, /* of a whole power of two of keys: 8 at least */
  kFewExtent = 256,
};

typedef struct fwd_job {
  const tg_attention_fwd_args *a;
  tgi_attention_layout l;
  int64_t blocks; /* slots for blocks of rows, of all sequences; some may be empty */
  int64_t splits; /* of the keys; 1: a task computes the results itself */
  int64_t split_keys;
  bool few;             /* a split covers all kv heads */
  int64_t scratch;      /* floats per thread */
  int64_t split_floats; /* of the sums of one split */
  float *threads;       /* [num_threads][scratch] */
  float *sums;          /* [blocks][kv_heads][splits][split_floats] */
} fwd_job;

/* The first block slot of sequence b. Only the data says how long packed sequences are: rounding
 * down and adding b gives each at least the slots that it needs. */
static int64_t first_block(const tgi_attention_layout *l, int64_t b)
{
  if (l->packed_q) {
    return l->cu_q[b] * l->group / kBlockRows + b;
  }
  return b * ((l->nq * l->group + kBlockRows - 1) / kBlockRows);
}

/* Splits are those of the next power of two of keys, so that a sequence's bits are the same
 * whatever room its cache has up to there: in blocks (paged keys) or just as many rows as there are
 * keys. */
static int64_t few_split_keys(const tgi_attention_layout *l)
{
  int64_t extent = kFewExtent;
  while (extent < l->extent) {
    extent *= 2;
  }
  const int64_t wanted = extent * l->kv_heads / kFewSplits;
  const int64_t of_all = tgi_min_i64(kMaxFewKeys, max_i64(kMinFewKeys, wanted));
  return round_up(of_all / l->kv_heads + 1, kTileKeys);
}

static fwd_job plan_fwd(const tgi_attention_layout *l, const tg_attention_fwd_args *a,
                        int num_threads)
{
  fwd_job job = {.a = a, .l = *l, .splits = 1};
  const int64_t per_sequence = (l->nq * l->group + kBlockRows - 1) / kBlockRows;
  const int64_t v_pitch = padded(l->v_dim);
  if (l->packed_q) {
    job.blocks = l->nq * l->group / kBlockRows + l->batch;
  } else {
    job.blocks = per_sequence * l->batch;
  }
  if (!l->packed_q && !l->packed_k && per_sequence == 1) {
    job.few = l->nq * l->group <= kFewRows;
    job.split_keys = job.few ? few_split_keys(l) : kSplitKeys;
    job.splits = max_i64(1, (l->extent + job.split_keys - 1) / job.split_keys);
  }
  job.scratch = round_up(max_i64(TGI_KERNEL(attention_tiles_scratch)(l) + kBlockRows * v_pitch,
                                 l->kv_heads * kFewRows * padded(l->head_dim)),
                         16);
  job.split_floats = round_up(l->nq * l->group * (v_pitch + 2), 16);
  job.threads = a->workspace;
  job.sums = job.threads ? job.threads + num_threads * job.scratch : NULL;
  return job;
}

static int64_t workspace_floats(const fwd_job *job, int num_threads)
{
  const int64_t sums =
      job->splits > 1 ? job->blocks * job->l.kv_heads * job->splits * job->split_floats : 0;
  return num_threads * job->scratch + sums;
}

/* Writes results, the sums divided, and lse. */
static void finish_rows(const tg_attention_fwd_args *a, const attention_block *k,
                        attention_sums *sums)
{
  const int64_t v_pitch = padded(k->l->v_dim);
  const row_map out = map_rows(k, &a->out);
  float *lse = a->lse.data;
  float sink[kBlockRows], factor[kBlockRows];
  for (int64_t r = 0; r < kBlockRows; r++) {
    sink[r] = r < k->rows && tgi_present(&a->sinks)
                  ? (float)tgi_load(a->sinks.data, a->sinks.dtype, k->head[r])
                  : -INFINITY;
  }
  for (int64_t r = 0; r < round_up(k->rows, TGI_LANES); r += TGI_LANES) {
    const vf s = vf_load_f32(sink + r), m = vf_load_f32(sums->m + r), zero = vf_zero();
    const vf now = vf_max(s, m), base = vf_select(vf_lt(vf_set1(-INFINITY), now), now, zero);
    const vf mine = vf_exp(m - base);
    const vf l = vf_fma(vf_load_f32(sums->l + r), mine, vf_exp(s - base));
    vf_store_f32(factor + r, vf_select(vf_le(vf_abs(l), zero), zero, mine / l));
    vf_store_f32(sums->m + r, base);
    vf_store_f32(sums->l + r, l);
  }
  for (int64_t r = 0; r < k->rows; r++) {
    narrow_row(row_at(k, out, r), a->out.dtype, sums->rows + r * v_pitch, k->l->v_dim, factor[r]);
    if (lse) {
      lse[block_lse(k, r)] = sums->m[r] + logf(sums->l[r]);
    }
  }
}

/* Computes a block's sums over all its keys. */
static void attend(const fwd_job *job, const attention_block *k, float *scratch,
                   attention_sums *sums)
{
  if (k->rows > kFewRows) {
    TGI_KERNEL(attention_tiles)(k, job->a, 0, k->s.count, scratch, sums);
    return;
  }
  const float *m = sums->rows + k->rows * padded(job->l.v_dim), *l = m + k->rows;
  TGI_KERNEL(attention_few)(k, 1, job->a, 0, k->s.count, scratch, sums->rows, 0);
  for (int64_t r = 0; r < kBlockRows; r++) {
    sums->m[r] = r < k->rows ? m[r] : -INFINITY;
    sums->l[r] = r < k->rows ? l[r] : 0;
  }
}

/* The sequence whose block slots include `slot`. */
static int64_t sequence_of(const tgi_attention_layout *l, int64_t slot)
{
  int64_t low = 0, high = l->batch;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (first_block(l, middle) <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Block of task `task`: tasks run through sequences, kv heads, blocks. False: an empty slot. */
static bool block_of_task(const fwd_job *job, int64_t task, attention_block *k)
{
  const tgi_attention_layout *l = &job->l;
  const int64_t b = sequence_of(l, task / l->kv_heads);
  const int64_t first = first_block(l, b);
  const int64_t slots = (b + 1 < l->batch ? first_block(l, b + 1) : job->blocks) - first;
  const int64_t local = task - first * l->kv_heads;
  const tgi_attention_sequence s = tgi_attention_sequence_at(l, b);
  block_init(k, l, &s, local / slots, local % slots);
  return k->rows > 0;
}

static void fwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  float *scratch = job->threads + thread * job->scratch;
  attention_sums sums;
  sums.rows = scratch + job->scratch - round_up(kBlockRows * padded(job->l.v_dim), 16);
  for (int64_t i = begin; i < end; i++) {
    attention_block k;
    if (block_of_task(job, job->blocks * job->l.kv_heads - 1 - i, &k)) {
      attend(job, &k, scratch, &sums);
      finish_rows(job->a, &k, &sums);
    }
  }
}

/* ---- splits ---- */

/* Where split `split` of block `task` writes its sums: rows, then m, then l. */
static float *split_sums(const fwd_job *job, int64_t task, int64_t split)
{
  return job->sums + (task * job->splits + split) * job->split_floats;
}

static void fwd_splits(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  float *scratch = job->threads + thread * job->scratch;
  const int64_t v_pitch = padded(job->l.v_dim);
  attention_sums sums;
  sums.rows = scratch + job->scratch - round_up(kBlockRows * v_pitch, 16);
  for (int64_t i = begin; i < end; i++) {
    const int64_t task = i / job->splits, split = i % job->splits;
    const int64_t first = split * job->split_keys;
    attention_block k;
    if (!block_of_task(job, task, &k)) {
      continue;
    }
    float *to = split_sums(job, task, split);
    TGI_KERNEL(attention_tiles)(&k, job->a, first, first + job->split_keys, scratch, &sums);
    memcpy(to, sums.rows, (size_t)(k.rows * v_pitch) * sizeof *to);
    memcpy(to + k.rows * v_pitch, sums.m, (size_t)k.rows * sizeof *to);
    memcpy(to + k.rows * (v_pitch + 1), sums.l, (size_t)k.rows * sizeof *to);
  }
}

/* The same for few rows: all kv heads of a sequence at once. */
static void fwd_few_splits(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  float *scratch = job->threads + thread * job->scratch;
  for (int64_t i = begin; i < end; i++) {
    const int64_t task = i / job->splits * job->l.kv_heads, split = i % job->splits;
    const int64_t first = split * job->split_keys;
    attention_block k;
    if (block_of_task(job, task, &k)) {
      TGI_KERNEL(attention_few)
      (&k, job->l.kv_heads, job->a, first, first + job->split_keys, scratch,
       split_sums(job, task, split), job->splits * job->split_floats);
    }
  }
}

/* sums += row r of one split, both rescaled to the greater maximum. */
static void combine_row(attention_sums *sums, int64_t r, int64_t pitch, const float *row, float m,
                        float l)
{
  const float now = m > sums->m[r] ? m : sums->m[r], base = now == -INFINITY ? 0 : now;
  const float old = expf(sums->m[r] - base), mine = expf(m - base);
  float *to = sums->rows + r * pitch;
  for (int64_t c = 0; c < pitch; c += TGI_LANES) {
    vf_store_f32(to + c,
                 vf_fma(vf_load_f32(row + c), vf_set1(mine), vf_load_f32(to + c) * vf_set1(old)));
  }
  sums->l[r] = sums->l[r] * old + l * mine;
  sums->m[r] = now;
}

static void combine_splits(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const int64_t pitch = padded(job->l.v_dim);
  attention_sums sums;
  sums.rows = job->threads + thread * job->scratch;
  for (int64_t task = begin; task < end; task++) {
    attention_block k;
    if (!block_of_task(job, task, &k)) {
      continue;
    }
    memset(sums.rows, 0, (size_t)(k.rows * pitch) * sizeof *sums.rows);
    for (int64_t r = 0; r < kBlockRows; r++) {
      sums.m[r] = -INFINITY;
      sums.l[r] = 0;
    }
    for (int64_t split = k.begin / job->split_keys; split * job->split_keys < k.end; split++) {
      const float *from = split_sums(job, task, split);
      for (int64_t r = 0; r < k.rows; r++) {
        combine_row(&sums, r, pitch, from + r * pitch, from[k.rows * pitch + r],
                    from[k.rows * (pitch + 1) + r]);
      }
    }
    finish_rows(job->a, &k, &sums);
  }
}

/* Blocks of a chunk: less than some microseconds of work is not worth a second thread. */
static int64_t fwd_grain(const tgi_attention_layout *l)
{
  const int64_t rows = l->nq * l->group < kBlockRows ? l->nq * l->group : kBlockRows;
  const int64_t products = rows * l->extent * (l->head_dim + l->v_dim);
  return 1 + kChunkProducts / max_i64(products, 1);
}

size_t TGI_WORKSPACE(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const fwd_job job = plan_fwd(&l, a, ctx->num_threads);
  return (size_t)workspace_floats(&job, ctx->num_threads) * sizeof(float);
}

tg_status TGI_KERNEL(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const tg_status status = tgi_attention_check(ctx, "attention_fwd", &l);
  if (status != TG_OK) {
    return status;
  }
  fwd_job job = plan_fwd(&l, a, ctx->num_threads);
  const int64_t tasks = job.blocks * l.kv_heads;
  if (job.splits == 1) {
    tgi_for(ctx, tasks, fwd_grain(&l), fwd_blocks, &job);
    return TG_OK;
  }
  if (job.few) {
    tgi_for(ctx, job.blocks * job.splits, 1, fwd_few_splits, &job);
  } else {
    tgi_for(ctx, tasks * job.splits, 1, fwd_splits, &job);
  }
  tgi_for(ctx, tasks, 1, combine_splits, &job);
  return TG_OK;
}

void TGI_PLAN(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a, char *text,
                             size_t bytes)
{
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const fwd_job job = plan_fwd(&l, a, ctx->num_threads);
  snprintf(text, bytes, "%lld blocks of %d rows, tiles of %d keys, %lld splits of the keys",
           (long long)(job.blocks * l.kv_heads), (int)kBlockRows, (int)kTileKeys,
           (long long)job.splits);
}
