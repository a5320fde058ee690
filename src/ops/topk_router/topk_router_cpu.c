/* Top-k router on the CPU.
 *
 * Method     A row is widened to f32 in memory of the thread, -infinity behind its end.
 *            Forward: the k best so far are a sorted list; a vector whose largest element is
 *            not above the last of them is passed by. Counts and probabilities are summed for
 *            each group of 64 tokens, then over the groups. Backward: the whole row in f32,
 *            then one rounding.
 * Work       Groups of 64 tokens; the sums over groups by 16 experts.
 * Bound      Latency of the list's insertions: rows are short.
 */
#include "cpu/exp.h"
#include "cpu/strips.h"
#include "ops/topk_router/router_rows.h"

#include <stdio.h>

enum { kPad = 16, kPiece = 2048, kSummed = 16 };

static int64_t padded(int64_t n)
{
  return (n + kPad - 1) / kPad * kPad;
}

/* A thread's memory: a row, and for each of the k a value and an expert. */
typedef struct scratch {
  float *row, *value;
  int32_t *expert;
} scratch;

static size_t scratch_bytes(int64_t experts, int64_t k)
{
  return (size_t)(padded(experts) + 2 * padded(k)) * 4;
}

static scratch scratch_of(void *workspace, int thread, int64_t experts, int64_t k)
{
  float *row = (void *)((char *)workspace + (size_t)thread * scratch_bytes(experts, k));
  float *value = row + padded(experts);
  return (scratch){row, value, (int32_t *)(void *)(value + padded(k))};
}

/* Widens a row; returns its largest element, NaN if one is. */
static float widen_row(float *row, const tg_tensor *logits, int64_t t)
{
  const int64_t n = logits->shape[1];
  vf most = vf_set1(-INFINITY), odd = vf_zero();
  tgi_widen(row, tgi_row(logits, t), logits->dtype, 0, n);
  for (int64_t e = n; e < padded(n); e++) {
    row[e] = -INFINITY;
  }
  for (int64_t e = 0; e < padded(n); e += TGI_LANES) {
    const vf x = vf_load_f32(row + e);
    odd = vf_select(vf_le(x, vf_set1(INFINITY)), odd, vf_set1(1.0f));
    most = vf_max(x, most);
  }
  return vf_hmax(odd) > 0 ? NAN : vf_hmax(most);
}

/* e^(from - largest) of a vector. */
TGI_ONE_COPY vf exponential(const float *from, float largest)
{
  return vf_exp(vf_load_f32(from) - vf_set1(largest));
}

/* The sum of e^(row - largest) over a row. */
static double sum_exponentials(const float *row, int64_t n, float largest)
{
  double sum = 0;
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t end = tgi_min_i64(padded(n), first + kPiece);
    vf s = vf_zero();
    for (int64_t e = first; e < end; e += TGI_LANES) {
      s = s + exponential(row + e, largest);
    }
    sum += vf_sum_f64(s);
  }
  return sum;
}

/* The list's values become e^(value - largest); returns their sum. */
static double list_exponentials(const scratch *s, int64_t k, float largest)
{
  double sum = 0;
  for (int64_t j = 0; j < padded(k); j += TGI_LANES) {
    vf_store_f32(s->value + j, exponential(s->value + j, largest));
  }
  for (int64_t j = 0; j < k; j++) {
    sum += (double)s->value[j];
  }
  return sum;
}

/* ---- forward ---- */

typedef struct fwd_job {
  const tg_topk_router_fwd_args *a;
  int32_t *counts; /* [groups, experts]; NULL: neither counts nor prob_sum */
  float *sums;     /* [groups, experts] */
  int64_t groups;
} fwd_job;

static int64_t groups_of(int64_t tokens)
{
  return (tokens + kRouterGroup - 1) / kRouterGroup;
}

/* Behind what is as large: of equal logits the lower index comes first. */
static void insert(const scratch *s, int64_t at, float v, int64_t e)
{
  for (; at > 0 && v > s->value[at - 1]; at--) {
    s->value[at] = s->value[at - 1];
    s->expert[at] = s->expert[at - 1];
  }
  s->value[at] = v;
  s->expert[at] = (int32_t)e;
}

static void select_experts(const scratch *s, int64_t experts, int64_t k)
{
  for (int64_t e = 0; e < k; e++) {
    insert(s, e, s->row[e], e);
  }
  for (int64_t first = k / TGI_LANES * TGI_LANES; first < experts; first += TGI_LANES) {
    if (vf_hmax(vf_load_f32(s->row + first)) > s->value[k - 1]) {
      const int64_t end = tgi_min_i64(experts, first + TGI_LANES);
      for (int64_t e = first < k ? k : first; e < end; e++) {
        if (s->row[e] > s->value[k - 1]) {
          insert(s, k - 1, s->row[e], e);
        }
      }
    }
  }
}

static void add_token(const fwd_job *job, const scratch *s, int64_t group, float largest,
                      double sum)
{
  const int64_t experts = job->a->logits.shape[1], k = job->a->indices.shape[1];
  float *sums = job->sums + group * experts;
  int32_t *counts = job->counts + group * experts;
  const vf by = vf_set1((float)(1 / sum));
  for (int64_t j = 0; j < k; j++) {
    counts[s->expert[j]]++;
  }
  for (int64_t e = 0; e < experts; e += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, experts - e);
    const vf p = exponential(s->row + e, largest) * by;
    vf_store_part_f32(sums + e, left, vf_load_part_f32(sums + e, left) + p);
  }
}

static void route_token(const fwd_job *job, const scratch *s, int64_t t)
{
  const tg_topk_router_fwd_args *a = job->a;
  const int64_t experts = a->logits.shape[1], k = a->indices.shape[1];
  const float largest = widen_row(s->row, &a->logits, t);
  const bool counted = job->counts && token_is_counted(&a->token_mask, t);
  const bool over_all = a->scoring == TG_ROUTER_ALL || counted;
  const double all = over_all ? sum_exponentials(s->row, experts, largest) : 0;
  if (isnan(largest)) {
    for (int64_t j = 0; j < k; j++) {
      s->value[j] = NAN;
      s->expert[j] = (int32_t)j;
    }
  } else {
    select_experts(s, experts, k);
  }
  const double selected = list_exponentials(s, k, largest);
  const double sum = a->scoring == TG_ROUTER_ALL ? all : selected;
  for (int64_t j = 0; j < k; j++) {
    put_expert(&a->indices, t, j, s->expert[j]);
    tgi_store(tgi_row(&a->weights, t), a->weights.dtype, j, (double)s->value[j] / sum);
  }
  if (counted) {
    add_token(job, s, t / kRouterGroup, largest, all);
  }
}

static void route_groups(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_topk_router_fwd_args *a = job->a;
  const int64_t experts = a->logits.shape[1];
  const scratch s = scratch_of(a->workspace, thread, experts, a->indices.shape[1]);
  for (int64_t g = begin; g < end; g++) {
    if (job->counts) {
      memset(job->counts + g * experts, 0, (size_t)experts * sizeof *job->counts);
      memset(job->sums + g * experts, 0, (size_t)experts * sizeof *job->sums);
    }
    const int64_t last = tgi_min_i64(a->logits.shape[0], (g + 1) * kRouterGroup);
    for (int64_t t = g * kRouterGroup; t < last; t++) {
      route_token(job, &s, t);
    }
  }
}

static void sum_groups(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_topk_router_fwd_args *a = job->a;
  const int64_t experts = a->logits.shape[1];
  (void)thread;
  for (int64_t e = begin; e < end; e++) {
    int32_t count = 0;
    double sum = 0;
    for (int64_t g = 0; g < job->groups; g++) {
      count += job->counts[g * experts + e];
      sum += (double)job->sums[g * experts + e];
    }
    if (tgi_present(&a->counts)) {
      ((int32_t *)a->counts.data)[e] = count;
    }
    if (tgi_present(&a->prob_sum)) {
      ((float *)a->prob_sum.data)[e] = (float)sum;
    }
  }
}

static size_t threads_bytes(const tg_context *ctx, int64_t experts, int64_t k)
{
  return (size_t)ctx->num_threads * scratch_bytes(experts, k);
}

size_t TGI_WORKSPACE(topk_router_fwd)(const tg_context *ctx, const tg_topk_router_fwd_args *a)
{
  const int64_t experts = a->logits.shape[1];
  const bool sums = tgi_present(&a->counts) || tgi_present(&a->prob_sum);
  const size_t group_bytes = sums ? (size_t)experts * 8 : 0;
  return threads_bytes(ctx, experts, a->indices.shape[1]) +
         (size_t)groups_of(a->logits.shape[0]) * group_bytes;
}

tg_status TGI_KERNEL(topk_router_fwd)(const tg_context *ctx, const tg_topk_router_fwd_args *a)
{
  const int64_t experts = a->logits.shape[1];
  fwd_job job = {a, NULL, NULL, groups_of(a->logits.shape[0])};
  const bool sums = tgi_present(&a->counts) || tgi_present(&a->prob_sum);
  if (sums) {
    const size_t first = threads_bytes(ctx, experts, a->indices.shape[1]);
    job.counts = (void *)((char *)a->workspace + first);
    job.sums = (float *)(void *)(job.counts + job.groups * experts);
  }
  tgi_for(ctx, job.groups, 1, route_groups, &job);
  if (sums) {
    tgi_for(ctx, experts, kSummed, sum_groups, &job);
  }
  return TG_OK;
}

void TGI_PLAN(topk_router_fwd)(const tg_context *ctx, const tg_topk_router_fwd_args *a, char *text,
                               size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld groups of %d tokens", (long long)groups_of(a->logits.shape[0]),
           kRouterGroup);
}

/* ---- backward ---- */

static float dweight_at(const tg_topk_router_bwd_args *a, int64_t t, int64_t j)
{
  return (float)tgi_load(tgi_row(&a->dweights, t), a->dweights.dtype, j);
}

/* The list gets the weights; returns dot. The row holds e^(logit - largest) with sum `all`, or for
 * scorings of the selected the logits. */
static float read_weights(const tg_topk_router_bwd_args *a, const scratch *s, int64_t t, bool odd,
                          double all)
{
  const int64_t k = a->indices.shape[1];
  float largest = -INFINITY;
  double dot = 0;
  for (int64_t j = 0; j < k; j++) {
    s->expert[j] = (int32_t)expert_at(&a->indices, t, j);
    s->value[j] = odd ? NAN : s->row[s->expert[j]];
    largest = s->value[j] > largest ? s->value[j] : largest;
  }
  const double sum = a->scoring == TG_ROUTER_ALL ? all : list_exponentials(s, k, largest);
  for (int64_t j = 0; j < k; j++) {
    s->value[j] = (float)((double)s->value[j] / sum);
    dot += (double)s->value[j] * (double)dweight_at(a, t, j);
  }
  return (float)dot;
}

/* The row of exponentials becomes p * (dprob_sum - sum(p dprob_sum) - dot). */
static void spread_row(const tg_topk_router_bwd_args *a, const scratch *s, bool counted, float dot,
                       double all)
{
  const int64_t experts = a->logits.shape[1];
  const float *c = counted ? a->dprob_sum.data : NULL;
  const vf by = vf_set1((float)(1 / all));
  double sum = 0;
  for (int64_t first = 0; counted && first < experts; first += kPiece) {
    const int64_t end = tgi_min_i64(experts, first + kPiece);
    vf part = vf_zero();
    for (int64_t e = first; e < end; e += TGI_LANES) {
      const int64_t left = tgi_min_i64(TGI_LANES, experts - e);
      part = vf_fma(vf_load_f32(s->row + e), vf_load_part_f32(c + e, left), part);
    }
    sum += vf_sum_f64(part);
  }
  const vf away = vf_set1((float)(sum / all) + dot);
  for (int64_t e = 0; e < experts; e += TGI_LANES) {
    const vf of =
        counted ? vf_load_part_f32(c + e, tgi_min_i64(TGI_LANES, experts - e)) : vf_zero();
    vf_store_f32(s->row + e, vf_load_f32(s->row + e) * by * (of - away));
  }
}

static void exponentiate_row(float *row, int64_t experts, float largest)
{
  for (int64_t e = 0; e < experts; e += TGI_LANES) {
    vf_store_f32(row + e, exponential(row + e, largest));
  }
}

static void gradient_token(const tg_topk_router_bwd_args *a, const scratch *s, int64_t t)
{
  const int64_t experts = a->logits.shape[1], k = a->indices.shape[1];
  const bool over_all = a->scoring == TG_ROUTER_ALL;
  const bool counted = tgi_present(&a->dprob_sum) && token_is_counted(&a->token_mask, t);
  const float largest = widen_row(s->row, &a->logits, t);
  const bool spread = over_all || counted;
  const double all = spread ? sum_exponentials(s->row, experts, largest) : 0;
  if (over_all) {
    exponentiate_row(s->row, experts, largest);
  }
  const float dot = read_weights(a, s, t, isnan(largest), all);
  if (counted && !over_all) {
    exponentiate_row(s->row, experts, largest);
  }
  if (spread) {
    spread_row(a, s, counted, over_all ? dot : 0, all);
  } else {
    memset(s->row, 0, (size_t)experts * sizeof *s->row);
  }
  for (int64_t j = 0; j < k; j++) {
    const float dw = dweight_at(a, t, j);
    s->row[s->expert[j]] += s->value[j] * (over_all ? dw : dw - dot);
  }
  tgi_narrow(tgi_row(&a->dlogits, t), a->dlogits.dtype, 0, experts, s->row);
}

static void gradient_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_topk_router_bwd_args *a = arg;
  const scratch s = scratch_of(a->workspace, thread, a->logits.shape[1], a->indices.shape[1]);
  for (int64_t t = begin; t < end; t++) {
    gradient_token(a, &s, t);
  }
}

size_t TGI_WORKSPACE(topk_router_bwd)(const tg_context *ctx, const tg_topk_router_bwd_args *a)
{
  return threads_bytes(ctx, a->logits.shape[1], a->indices.shape[1]);
}

tg_status TGI_KERNEL(topk_router_bwd)(const tg_context *ctx, const tg_topk_router_bwd_args *a)
{
  tg_topk_router_bwd_args args = *a;
  const tg_status status = check_experts(ctx, a);
  if (status == TG_OK) {
    tgi_for(ctx, a->logits.shape[0], kRouterGroup, gradient_tokens, &args);
  }
  return status;
}

void TGI_PLAN(topk_router_bwd)(const tg_context *ctx, const tg_topk_router_bwd_args *a, char *text,
                               size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld chunks of %d tokens", (long long)groups_of(a->logits.shape[0]),
           kRouterGroup);
}
