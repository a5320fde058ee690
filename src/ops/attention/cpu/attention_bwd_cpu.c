/* Attention backward on the CPU: the plan, the loop over tasks, and the sums of dk and dv.
 *
 * Work       A task is one kv head of one sequence and a chunk of its rows; the problem alone
 *            decides the chunks. Within a task, blocks of rows (attention_gradient_cpu.c) follow
 *            one another. With one chunk the f32 sums of dk and dv belong to the thread, and the
 *            task writes the result. With more, each task has its own sums, and a second loop adds
 *            them in order.
 * Method     arXiv:2307.08691, section 3.1.
 */
#include "ops/attention/cpu/attention_gradient.h"

#include <stdio.h>

enum { kMaxTasks = 64, kMinChunkRows = 1024 };

typedef struct bwd_job {
  const tg_attention_bwd_args *a;
  tgi_attention_layout l;
  int64_t pitch;    /* of a row of sums: dk's part, then dv's */
  int64_t chunks;   /* of the rows of a sequence */
  int64_t key_rows; /* rows of sums of a sequence; of all sequences if packed */
  int64_t scratch;  /* floats of a thread, sums included if chunks is 1 */
  int64_t own_sums; /* floats from a thread's scratch to its sums */
  float *threads;   /* [num_threads][scratch] */
  float *sums;      /* [chunks][kv_heads][all key rows][pitch] if chunks > 1 */
  double *dsinks;   /* [batch][chunks][q_heads] */
} bwd_job;

/* Rows of sums over the whole batch, for one kv head. */
static int64_t all_key_rows(const bwd_job *job)
{
  return job->l.packed_k ? job->key_rows : job->key_rows * job->l.batch;
}

static int64_t shared_floats(const bwd_job *job)
{
  const int64_t rows = job->chunks * job->l.kv_heads * all_key_rows(job);
  return job->chunks > 1 ? round_up(rows * job->pitch, 16) : 0;
}

static bwd_job plan_bwd(const tgi_attention_layout *l, const tg_attention_bwd_args *a,
                        int num_threads)
{
  bwd_job job = {.a = a, .l = *l, .pitch = padded(l->head_dim) + padded(l->v_dim)};
  const int64_t sequences = max_i64(1, l->batch);
  const int64_t rows = (l->packed_q ? l->nq / sequences : l->nq) * l->group;
  const int64_t wanted = max_i64(1, kMaxTasks / (sequences * l->kv_heads));
  job.chunks = tgi_min_i64(wanted, max_i64(1, rows / kMinChunkRows));
  job.key_rows = round_up(l->extent, TGI_TILE_ROWS) + (l->packed_k ? TGI_TILE_ROWS * l->batch : 0);
  job.own_sums = round_up(TGI_KERNEL(attention_gradient_scratch)(l), 16);
  job.scratch = job.own_sums + (job.chunks == 1 ? round_up(job.key_rows * job.pitch, 16) : 0);
  if (a->workspace) {
    job.threads = a->workspace;
    job.sums = job.threads + num_threads * job.scratch;
    job.dsinks = (double *)(void *)(job.sums + shared_floats(&job));
  }
  return job;
}

size_t TGI_WORKSPACE(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const bwd_job job = plan_bwd(&l, a, ctx->num_threads);
  const int64_t floats = ctx->num_threads * job.scratch + shared_floats(&job);
  return (size_t)floats * sizeof(float) +
         (size_t)(l.batch * job.chunks * l.q_heads) * sizeof(double);
}

/* The sums of a chunk for one kv head of a sequence: rows of dk, then rows of dv. */
static float *chunk_sums(const bwd_job *job, int64_t chunk, int64_t kv_head,
                         const tgi_attention_sequence *s)
{
  const int64_t first = job->l.packed_k
                            ? s->k_first / TGI_TILE_ROWS * TGI_TILE_ROWS + TGI_TILE_ROWS * s->b
                            : job->key_rows * s->b;
  const int64_t row = (chunk * job->l.kv_heads + kv_head) * all_key_rows(job) + first;
  return job->sums + row * job->pitch;
}

static int64_t sum_rows(const tgi_attention_sequence *s)
{
  return round_up(s->count, TGI_TILE_ROWS);
}

/* Writes rows of dk or dv of one kv head of a sequence: the chunks' sums, and zeros for rows that
 * are not keys. sums[c] has rows of `pitch` floats. */
static void write_keys(const bwd_job *job, const tgi_attention_sequence *s, int64_t kv_head,
                       const tg_tensor *t, float *const *sums, int64_t chunks, int64_t pitch)
{
  const attention_block at = {.l = &job->l, .s = *s, .kv_head = kv_head};
  const key_map map = map_keys(&at, t);
  for (int64_t row = 0; row < s->extent; row++) {
    const int64_t key = row - s->first;
    void *to = key_at(&at, map, key);
    if (key < 0 || key >= s->count) {
      memset(to, 0, (size_t)t->shape[3] * tg_dtype_bytes(t->dtype));
      continue;
    }
    float *total = sums[0] + key * pitch;
    for (int64_t c = 0; c < pitch && chunks > 1; c += TGI_LANES) {
      vf sum = vf_load_f32(total + c);
      for (int64_t chunk = 1; chunk < chunks; chunk++) {
        sum = sum + vf_load_f32(sums[chunk] + key * pitch + c);
      }
      vf_store_f32(total + c, sum);
    }
    narrow_row(to, t->dtype, total, t->shape[3], 1);
  }
}

static void write_dk_dv(const bwd_job *job, const tgi_attention_sequence *s, int64_t kv_head,
                        float *const *sums)
{
  const tg_attention_bwd_args *a = job->a;
  const int64_t q_pitch = padded(job->l.head_dim), v_pitch = padded(job->l.v_dim);
  float *dv[kMaxTasks] = {0};
  for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
    dv[chunk] = sums[chunk] + sum_rows(s) * q_pitch;
  }
  if (tgi_present(&a->dk)) {
    write_keys(job, s, kv_head, &a->dk, sums, job->chunks, q_pitch);
  }
  if (tgi_present(&a->dv)) {
    write_keys(job, s, kv_head, &a->dv, dv, job->chunks, v_pitch);
  }
}

static void bwd_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_attention_bwd_args *a = job->a;
  const tgi_attention_layout *l = &job->l;
  float *scratch = job->threads + thread * job->scratch;
  for (int64_t i = begin; i < end; i++) {
    /* The last chunks come first: a causal mask gives them most keys. */
    const int64_t chunk = job->chunks - 1 - i / (l->kv_heads * l->batch);
    const int64_t b = i / l->kv_heads % l->batch, kv_head = i % l->kv_heads;
    const tgi_attention_sequence s = tgi_attention_sequence_at(l, b);
    float *sums = job->chunks == 1 ? scratch + job->own_sums : chunk_sums(job, chunk, kv_head, &s);
    const int64_t blocks = (s.nq * l->group + kBlockRows - 1) / kBlockRows;
    const attention_sums_bwd to = {
        .dk = tgi_present(&a->dk) ? sums : NULL,
        .dv = tgi_present(&a->dv) ? sums + sum_rows(&s) * padded(l->head_dim) : NULL,
        .dsinks =
            tgi_present(&a->dsinks) ? job->dsinks + (b * job->chunks + chunk) * l->q_heads : NULL};
    memset(sums, 0, (size_t)(sum_rows(&s) * job->pitch) * sizeof *sums);
    if (to.dsinks) {
      memset(to.dsinks + kv_head * l->group, 0, (size_t)l->group * sizeof *to.dsinks);
    }
    for (int64_t index = blocks * chunk / job->chunks; index < blocks * (chunk + 1) / job->chunks;
         index++) {
      attention_block k;
      block_init(&k, l, &s, kv_head, index);
      TGI_KERNEL(attention_gradient)(&k, a, scratch, &to);
    }
    if (job->chunks == 1) {
      write_dk_dv(job, &s, kv_head, &sums);
    }
  }
}

static void bwd_sums(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const int64_t b = i / job->l.kv_heads, kv_head = i % job->l.kv_heads;
    const tgi_attention_sequence s = tgi_attention_sequence_at(&job->l, b);
    float *sums[kMaxTasks] = {0};
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
      sums[chunk] = chunk_sums(job, chunk, kv_head, &s);
    }
    write_dk_dv(job, &s, kv_head, sums);
  }
}

static void add_dsinks(const bwd_job *job)
{
  const tg_tensor *t = &job->a->dsinks;
  for (int64_t head = 0; head < job->l.q_heads; head++) {
    double sum = 0;
    for (int64_t i = 0; i < job->l.batch * job->chunks; i++) {
      sum += job->dsinks[i * job->l.q_heads + head];
    }
    tgi_store(t->data, t->dtype, head, tgi_load(t->data, t->dtype, head) + sum);
  }
}

tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const tg_status status = tgi_attention_check(ctx, "attention_bwd", &l);
  if (status != TG_OK) {
    return status;
  }
  bwd_job job = plan_bwd(&l, a, ctx->num_threads);
  tgi_for(ctx, l.batch * l.kv_heads * job.chunks, 1, bwd_tasks, &job);
  if (job.chunks > 1) {
    tgi_for(ctx, l.batch * l.kv_heads, 1, bwd_sums, &job);
  }
  if (tgi_present(&a->dsinks)) {
    add_dsinks(&job);
  }
  return TG_OK;
}

void TGI_PLAN(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a, char *text,
                             size_t bytes)
{
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const bwd_job job = plan_bwd(&l, a, ctx->num_threads);
  snprintf(text, bytes, "%lld kv heads, %lld chunks of their rows, tiles of %d x %d",
           (long long)(l.batch * l.kv_heads), (long long)job.chunks, (int)kBlockRows,
           (int)kTileKeys);
}
