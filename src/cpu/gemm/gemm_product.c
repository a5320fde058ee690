/* Products: how C is cut, and what one task does. See gemm.h. */
#include "cpu/gemm/gemm_product.h"

#include "cpu/gemm/gemm_finish.h"
#include "cpu/gemm/gemm_unit.h"
#include "cpu/gemm/gemv.h"
#include <stdio.h>

enum {
  kGroupRows = 96,         /* rows of A packed at a time: a multiple of every MR */
  kMaxRows = 512,          /* of a task: its sums stay in the L2 or L3 cache */
  kMaxColumns = 1024,      /* of a task */
  kTasksPerThread = 2,     /* at least; evens out cores of unequal speed */
  kManyTasks = 8,          /* per thread: from here on a thread without a last task is no loss */
  kMinTaskSteps = 1 << 20, /* multiply-adds that are worth a task */
  kUnitBytes = 4,
  kCacheWayBytes = 4096 /* rows as far apart as this share one set of a first-level cache */
};

static int64_t divide_up(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t multiple)
{
  return divide_up(a, multiple) * multiple;
}

static int64_t block_of_k(int64_t units)
{
  const int64_t blocks = divide_up(units, TGI_GEMM_MAX_K);
  return blocks > 0 ? round_up(divide_up(units, blocks), 16) : 16;
}

static int64_t row_bytes(const tgi_gemm_operand *a)
{
  return a->stride * (int64_t)tg_dtype_bytes(a->dtype);
}

/* True if A's rows consist of units and a tile's can be in the first-level cache together. */
static bool has_rows_of_units(const tgi_gemm_problem *p)
{
  return p->a.along_k && !p->a.pick && p->a.dtype == (TGI_UNIT_K == 2 ? TG_BF16 : TG_F32) &&
         p->k % TGI_UNIT_K == 0 && row_bytes(&p->a) % kCacheWayBytes != 0;
}

/* True if y receives sums directly: nothing follows. */
static bool is_plain(const tgi_gemm_result *c)
{
  return c->dtype == TG_F32 && !c->bias && !c->preactivation && !c->residual &&
         c->activation == TGI_GEMM_NO_ACTIVATION;
}

/* True if sums over blocks of K can wait in y. */
static bool sums_in_place(const tgi_gemm_result *c)
{
  return is_plain(c) || (c->dtype == TG_F32 && c->residual == NULL);
}

/* Floats in half of the L2 cache. */
static int64_t half_cache(const tg_context *ctx)
{
  return (int64_t)(ctx->processor.l2_bytes / 2 / sizeof(float));
}

/* How a product is cut; from its sizes and the context alone. */
typedef struct product_plan {
  bool gemv;                /* few rows: B is read once and never packed */
  int64_t block_k;          /* in units: elements, or pairs of bf16 */
  int64_t block_m, block_n; /* of a task */
  int64_t tasks_m, tasks_n;
  bool scratch;    /* sums over blocks of K wait in f32 scratch, not in y */
  bool a_in_place; /* A is not packed */
} product_plan;

static bool are_enough(int64_t tasks, int64_t wanted, int64_t threads)
{
  return tasks >= wanted &&
         (tasks % threads == 0 || tasks < threads || tasks > kManyTasks * threads);
}

/* Cuts C until there are enough tasks. Cutting the columns packs A once more, cutting the rows B,
 * and transposing while packing costs about twice a copy: take the cut that adds less per task. */
static void cut_tasks(product_plan *plan, const tgi_gemm_problem *p, int64_t wanted,
                      int64_t threads)
{
  const double a_cost = (double)p->m, b_cost = (double)p->n * (p->b.along_k ? 2 : 1);
  while (!are_enough(plan->tasks_m * plan->tasks_n, wanted, threads)) {
    const bool can_m = plan->tasks_m * TGI_GEMM_MR < p->m;
    const bool can_n = plan->tasks_n * TGI_GEMM_NR < p->n;
    const double cut_m = b_cost / (double)plan->tasks_n, cut_n = a_cost / (double)plan->tasks_m;
    if (can_m && (!can_n || cut_m < cut_n)) {
      plan->tasks_m++;
    } else if (can_n) {
      plan->tasks_n++;
    } else {
      return;
    }
  }
}

static product_plan make_plan(const tg_context *ctx, const tgi_gemm_problem *p)
{
  const int64_t units = tgi_units(p->k);
  product_plan plan = {.block_k = block_of_k(units), .gemv = tgi_gemv_takes(p)};
  if (plan.gemv) {
    plan.block_m = p->m;
    plan.tasks_m = 1;
    plan.block_n = tgi_gemv_grain(p);
    plan.tasks_n = divide_up(p->n, plan.block_n);
    return plan;
  }
  plan.scratch = units > plan.block_k && !sums_in_place(&p->c);
  plan.a_in_place = has_rows_of_units(p);
  int64_t most_n = half_cache(ctx) / plan.block_k / TGI_GEMM_NR * TGI_GEMM_NR;
  most_n = most_n < TGI_GEMM_NR ? TGI_GEMM_NR : most_n > kMaxColumns ? kMaxColumns : most_n;
  plan.tasks_m = divide_up(p->m, kMaxRows);
  plan.tasks_n = divide_up(p->n, most_n);
  if (ctx->num_threads > 1) {
    const double most = (double)p->m * (double)p->n * (double)units / kMinTaskSteps;
    const int64_t wanted = (int64_t)kTasksPerThread * ctx->num_threads;
    cut_tasks(&plan, p, most < (double)wanted ? (int64_t)most : wanted, ctx->num_threads);
  }
  plan.block_m = round_up(divide_up(p->m, plan.tasks_m), TGI_GEMM_MR);
  plan.block_n = round_up(divide_up(p->n, plan.tasks_n), TGI_GEMM_NR);
  plan.tasks_m = divide_up(p->m, plan.block_m);
  plan.tasks_n = divide_up(p->n, plan.block_n);
  return plan;
}

/* Floats of one thread's workspace: a group of A, a block of B, sums. All multiples of 16. */
typedef struct task_space {
  int64_t a, b, sums;
} task_space;

static task_space space_of(const product_plan *plan)
{
  return (task_space){
      .a = round_up(tgi_gemm_packed_a_floats(kGroupRows), 16),
      .b = round_up(tgi_gemm_packed_b_floats(plan->block_n, plan->block_k), 16),
      .sums = plan->scratch ? plan->block_m * plan->block_n : 0,
  };
}

size_t tgi_product_workspace(const tg_context *ctx, const tgi_gemm_problem *p)
{
  const product_plan plan = make_plan(ctx, p);
  if (plan.gemv) {
    return tgi_gemv_workspace(p);
  }
  const task_space space = space_of(&plan);
  return (size_t)ctx->num_threads * (size_t)(space.a + space.b + space.sums) * sizeof(float);
}

/* A block of B holds half_cache or one panel; the other extents are bounded by their own limits. */
size_t tgi_product_workspace_within(const tg_context *ctx, const tgi_gemm_problem *p)
{
  const int64_t k = tgi_min_i64(round_up(tgi_units(p->k), 16), TGI_GEMM_MAX_K);
  const product_plan most = {
      .block_k = k > 16 ? k : 16,
      .block_m = tgi_min_i64(round_up(p->m, TGI_GEMM_MR), round_up(kMaxRows, TGI_GEMM_MR)),
      .block_n = tgi_min_i64(round_up(p->n, TGI_GEMM_NR), kMaxColumns),
      .scratch = !sums_in_place(&p->c)};
  task_space space = space_of(&most);
  const int64_t panel = most.block_k * TGI_GEMM_NR, cache = round_up(half_cache(ctx), 16);
  space.b = tgi_min_i64(space.b, cache > panel ? cache : panel);
  const size_t bytes =
      (size_t)ctx->num_threads * (size_t)(space.a + space.b + space.sums) * sizeof(float);
  tgi_gemm_problem few = *p;
  few.m = tgi_min_i64(p->m, TGI_GEMV_MOST);
  const size_t few_bytes = tgi_gemv_workspace(&few);
  return bytes > few_bytes ? bytes : few_bytes;
}

/* One block of K of one task. */
typedef struct step {
  const tgi_gemm_problem *p;
  int64_t m0, n0, n; /* origin and width of the task's block of C */
  int64_t k;         /* units */
  float *sums;       /* where sums wait: y or scratch, at the block's origin */
  int64_t sums_stride;
  bool sums_wide; /* room for whole vectors past n */
  bool add;       /* to what waits */
  bool finish;
} step;

static void merge_part(const float *tile, float *sums, int64_t stride, int64_t m, int64_t n,
                       bool add)
{
  for (int64_t i = 0; i < m; i++) {
    for (int64_t v = 0; v < n; v += TGI_LANES) {
      const int64_t lanes = tgi_min_i64(TGI_LANES, n - v);
      vf x = vf_load_f32(tile + i * TGI_GEMM_NR + v);
      if (add) {
        x = vf_load_part_f32(sums + i * stride + v, lanes) + x;
      }
      vf_store_part_f32(sums + i * stride + v, lanes, x);
    }
  }
}

/* Rows [i, i + m) of the block, m <= MR, against all of the packed columns. a_stride: bytes from
 * one row of A to the next. */
static void multiply_panel(const step *s, int64_t i, int64_t m, const void *a, int64_t a_stride,
                           const float *b)
{
  _Alignas(64) float tile[TGI_GEMM_MR * TGI_GEMM_NR];
  const bool along_k = s->p->a.along_k;
  float *sums = s->sums ? s->sums + i * s->sums_stride : NULL;
  for (int64_t j = 0; j < s->n; j += TGI_GEMM_NR, b += TGI_GEMM_NR * s->k) {
    const int64_t n = tgi_min_i64(TGI_GEMM_NR, s->n - j), nv = n > TGI_LANES ? 2 : 1;
    tgi_gemm_micro *micro = tgi_gemm_micro_at(m, nv, along_k);
    if (!s->finish && (s->sums_wide || n == nv * TGI_LANES)) {
      micro(s->k, a, a_stride, b, sums + j, s->sums_stride, s->add);
      continue;
    }
    micro(s->k, a, a_stride, b, tile, TGI_GEMM_NR, false);
    if (s->finish) {
      tgi_gemm_finish(&s->p->c, tile, s->add ? sums + j : NULL, s->sums_stride, s->m0 + i,
                      s->n0 + j, m, n);
    } else {
      merge_part(tile, sums + j, s->sums_stride, m, n, s->add);
    }
  }
}

/* The block's rows up to m1, units from k0 on, against the packed columns: group by group. */
static void multiply_packed(const step *s, int64_t m1, int64_t k0, float *a, const float *b)
{
  for (int64_t m = s->m0; m < m1; m += kGroupRows) {
    const int64_t rows = tgi_min_i64(kGroupRows, m1 - m);
    tgi_gemm_pack_a(&s->p->a, m, rows, k0, s->k, s->p->k, a);
    for (int64_t i = 0; i < rows; i += TGI_GEMM_MR) {
      multiply_panel(s, m - s->m0 + i, tgi_min_i64(TGI_GEMM_MR, rows - i),
                     a + i * TGI_GEMM_A_STRIDE, kUnitBytes * TGI_GEMM_A_STRIDE, b);
    }
  }
}

/* The same with A as it lies. */
static void multiply_rows(const step *s, int64_t m1, int64_t k0, const float *b)
{
  const int64_t stride = row_bytes(&s->p->a);
  const char *a = (const char *)s->p->a.data + s->m0 * stride + k0 * kUnitBytes;
  for (int64_t m = s->m0; m < m1; m += TGI_GEMM_MR, a += TGI_GEMM_MR * stride) {
    multiply_panel(s, m - s->m0, tgi_min_i64(TGI_GEMM_MR, m1 - m), a, stride, b);
  }
}

typedef struct product {
  const tgi_gemm_problem *p;
  product_plan plan;
  task_space space;
  float *workspace;
} product;

static void run_task(const product *job, int64_t task, float *space)
{
  const tgi_gemm_problem *p = job->p;
  const product_plan *plan = &job->plan;
  float *a = space, *b = a + job->space.a, *sums = b + job->space.b;
  const int64_t units = tgi_units(p->k), m0 = task % plan->tasks_m * plan->block_m;
  const int64_t m1 = tgi_min_i64(p->m, m0 + plan->block_m);
  step s = {.p = p, .m0 = m0, .n0 = task / plan->tasks_m * plan->block_n};
  s.n = tgi_min_i64(p->n - s.n0, plan->block_n);
  s.sums_wide = plan->scratch;
  if (plan->scratch) {
    s.sums = sums;
    s.sums_stride = plan->block_n;
  } else if (p->c.dtype == TG_F32) { /* else one block of K: nothing waits */
    s.sums = (float *)p->c.y + m0 * p->c.stride + s.n0;
    s.sums_stride = p->c.stride;
  }
  const bool plain = is_plain(&p->c);
  int64_t k0 = 0;
  do {
    s.k = tgi_min_i64(units - k0, plan->block_k);
    s.add = k0 > 0 || p->c.accumulate;
    s.finish = !plain && k0 + s.k >= units;
    tgi_gemm_pack_b(&p->b, s.n0, s.n, k0, s.k, p->k, b);
    if (plan->a_in_place) {
      multiply_rows(&s, m1, k0, b);
    } else {
      multiply_packed(&s, m1, k0, a, b);
    }
    k0 += s.k;
  } while (k0 < units);
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const product *job = arg;
  const int64_t floats = job->space.a + job->space.b + job->space.sums;
  for (int64_t task = begin; task < end; task++) {
    run_task(job, task, job->workspace + thread * floats);
  }
}

void tgi_product_run(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace)
{
  product job = {.p = p, .plan = make_plan(ctx, p), .workspace = workspace};
  if (job.plan.gemv) {
    tgi_gemv(ctx, p, job.plan.block_k, workspace);
    return;
  }
  job.space = space_of(&job.plan);
  tgi_for(ctx, job.plan.tasks_m * job.plan.tasks_n, 1, run_tasks, &job);
}

void tgi_product_explain(const tg_context *ctx, const tgi_gemm_problem *p, char *text, size_t bytes)
{
  const product_plan plan = make_plan(ctx, p);
  snprintf(text, bytes, "%s %lldx%lldx%lld: %lld tasks of %lldx%lld, k in blocks of %lld%s",
           plan.gemv ? "gemv" : "gemm", (long long)p->m, (long long)p->n, (long long)p->k,
           (long long)(plan.tasks_m * plan.tasks_n), (long long)plan.block_m,
           (long long)plan.block_n, (long long)(plan.block_k * TGI_UNIT_K),
           TGI_UNIT_K == 2 ? " (bf16 pairs)" : "");
}
