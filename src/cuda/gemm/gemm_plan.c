/* Plans of products: see gemm_problem.h. */
#include "cuda/gemm/gemm_problem.h"

#include <limits.h>
#include <stdio.h>

enum {
  kTileM = 128,
  kTileN = 192, /* 2880 and 5760 are multiples; 768 and 1536 too */
  kTileK = 64,
  kStages = 4,
  kAlignment = 1024,   /* of tiles, which dynamic shared memory has not by itself */
  kBesideTiles = 2048, /* barriers and the bias of a tile */
  kTileBytes = 16384,  /* of A in a stage */
  kVector = 8,         /* 16-bit elements */
};

static int64_t parts(int64_t n, int64_t part)
{
  return n / part + (n % part != 0);
}

static bool is_half(tg_dtype dtype)
{
  return dtype == TG_BF16 || dtype == TG_F16;
}

/* Why the tiles do not take a problem; NULL: they do. */
static const char *obstacle(const tgi_gemm_problem *p)
{
  const bool steps = p->grouped == TGI_GEMM_GROUPS_OF_STEPS;
  if (!is_half(p->a.dtype) || p->a.dtype != p->b.dtype) {
    return "operands that are not both f16 or both bf16";
  }
  if (p->c.dtype != p->a.dtype && !(steps && p->c.dtype == TG_F32)) {
    return "a result of another dtype";
  }
  if (p->m == 0 || p->n == 0 || p->k == 0) {
    return "nothing to multiply";
  }
  if (p->n % kVector != 0 || (steps ? p->m : p->k) % kVector != 0) {
    return "rows that are not whole vectors of 16 bytes";
  }
  if (p->epilogue != TGI_GEMM_STORE && p->n % (2 * (int64_t)kVector) != 0) {
    return "rows of an activation that are not whole vectors of 16 bytes";
  }
  if (!p->a.vectors || !p->b.vectors || !p->c.vectors) {
    return "rows that do not begin at multiples of 16 bytes";
  }
  if (p->groups > TGI_GEMM_MOST_GROUPS) {
    return "more groups than fit into shared memory";
  }
  return NULL;
}

/* Gate and up of one output have to be in one tile. Halves lie apart, and of a B across k only
 * whole blocks of 64 columns are loaded. */
static bool is_fused(const tgi_gemm_problem *p)
{
  return p->epilogue != TGI_GEMM_GATED_HALVES || p->b.major == TGI_GEMM_ALONG_K;
}

static size_t shared_bytes(const tgi_gemm_problem *p, const tgi_gemm_plan *plan)
{
  const size_t stage = kTileBytes + (size_t)plan->tile_n * 2 * kTileK;
  const size_t result = (size_t)plan->tile_n * 2 * kTileM;
  return kAlignment + (size_t)plan->stages * stage + result + kBesideTiles +
         ((size_t)p->groups + 2) * 8;
}

tgi_gemm_plan tgi_gemm_plan_sm90(const tgi_gemm_problem *p, const tgi_gemm_device *device)
{
  tgi_gemm_plan plan = {.kernel = TGI_GEMM_NOT_TAKEN,
                        .reason = obstacle(p),
                        .fused = is_fused(p),
                        .tile_m = kTileM,
                        .tile_n = kTileN,
                        .tile_k = kTileK,
                        .stages = kStages};
  if (plan.reason) {
    return plan;
  }
  plan.column_tiles = parts(p->n, plan.tile_n);
  if (plan.fused && p->epilogue == TGI_GEMM_GATED_HALVES) {
    plan.column_tiles = parts(p->n / 2, plan.tile_n / 2);
  }
  if (p->grouped == TGI_GEMM_GROUPS_OF_ROWS) { /* those of no group are one more */
    const int64_t ends = p->m < p->groups + 1 ? p->m : p->groups + 1;
    plan.row_tiles = p->m / plan.tile_m + ends;
  } else {
    plan.row_tiles = parts(p->m, plan.tile_m);
  }
  const int64_t each = plan.row_tiles * plan.column_tiles;
  plan.tiles = p->grouped == TGI_GEMM_GROUPS_OF_STEPS ? each * p->groups : each;
  plan.blocks = (int)(plan.tiles < device->multiprocessors ? plan.tiles : device->multiprocessors);
  plan.shared = shared_bytes(p, &plan);
  if (plan.tiles > INT_MAX / 2) {
    plan.reason = "more tiles than 2^30";
  } else if ((int64_t)plan.shared > device->shared_bytes) {
    plan.reason = "a device with less shared memory";
  } else {
    plan.kernel = TGI_GEMM_SM90_TILES;
  }
  return plan;
}

/* ---- dense: one group ---- */

enum {
  kInStepBytes = 32768, /* of shared memory through which results are stored */
  kInStepBarriers = 256,
  kWideColumns = 256,
  kNarrowColumns = 128,
  kDeepStages = 6 /* of narrow tiles */
};

/* Tiles of one product, and a block for each multiprocessor at most. */
static void count_tiles(tgi_gemm_plan *plan, const tgi_gemm_problem *p,
                        const tgi_gemm_device *device)
{
  plan->row_tiles = parts(p->m, plan->tile_m);
  plan->column_tiles = parts(p->n, plan->tile_n);
  plan->tiles = plan->row_tiles * plan->column_tiles;
  plan->blocks =
      (int)(plan->tiles < device->multiprocessors ? plan->tiles : device->multiprocessors);
}

/* Rows of a forward product's result may begin anywhere, if they are written once. */
static bool may_be_loose(const tgi_gemm_problem *p)
{
  return p->epilogue == TGI_GEMM_STORE && p->a.major == TGI_GEMM_ALONG_K &&
         p->b.major == TGI_GEMM_ALONG_K && !p->adds && !p->reads;
}

/* Nothing is asked of k: a row may have an end within a vector of 16 bytes, if the next one begins
 * at one. Of a map TMA wants addresses, steps and the box's own rows in such vectors, but not
 * extents, which it counts in elements: of a box that reaches beyond the tensor the elements
 * outside are 0 in shared memory, whatever lies there between rows, and count as copied. */
static const char *obstacle_to_dense(const tgi_gemm_problem *p)
{
  if (!is_half(p->a.dtype) || p->a.dtype != p->b.dtype) {
    return "operands that are not both f16 or both bf16";
  }
  if (p->c.dtype != p->a.dtype && p->c.dtype != TG_F32) {
    return "a result of another dtype";
  }
  if (p->m == 0 || p->n == 0 || p->k == 0) {
    return "nothing to multiply";
  }
  if (p->a.major == TGI_GEMM_ACROSS_K && p->b.major == TGI_GEMM_ALONG_K) {
    return "A across k beside B along it";
  }
  if (!p->a.vectors || !p->b.vectors || (!p->c.vectors && !may_be_loose(p))) {
    return "rows that do not begin at multiples of 16 bytes";
  }
  if (p->m > INT_MAX / 2 || p->n > INT_MAX / 2 || p->k > INT_MAX / 2) {
    return "extents above 2^30";
  }
  return NULL;
}

/* Tiles that finish beside the next one's products store whole vectors of 16 bits and do nothing
 * else. */
static const char *obstacle_to_beside(const tgi_gemm_problem *p)
{
  return p->c.dtype == TG_F32 || p->finishes || p->adds || p->reads || p->n % kVector != 0 ||
                 !p->c.vectors
             ? "results that are stored in step"
             : NULL;
}

/* Gradients of activations over so many sums that few tiles take long, as those of a head over its
 * vocabulary. A row's bits must not depend on the number of rows, so all of them have one width of
 * tiles and as many parts. */
static bool has_long_rows(const tgi_gemm_problem *p)
{
  enum { kLong = 32768 };
  return p->a.major == TGI_GEMM_ALONG_K && p->b.major == TGI_GEMM_ACROSS_K && p->k >= kLong;
}

/* Of gradients of weights, products TN, which have as many sums as there are rows: where tiles
 * occupy less than half of the device, the blocks of a cluster make a tile in parts along k.
 * `most`: tiles up to which an H200 has the clusters at work at once, of 2 .. 8 blocks, one on a
 * multiprocessor; whatever the device, for sums go by shapes. Of long rows four, whatever the
 * tiles. 0: not in parts. */
static int parts_of_tile(const tgi_gemm_problem *p, const tgi_gemm_plan *plan)
{
  enum { kStepsOfPart = 8 /* at least */, kPartsOfLongRows = 4 };
  static const int most[TGI_GEMM_FEW_PARTS + 1] = {[2] = 64, 40, 28, 22, 18, 14, 14};
  if (has_long_rows(p)) {
    return kPartsOfLongRows;
  }
  if (p->a.major != TGI_GEMM_ACROSS_K || plan->tile_n != kNarrowColumns) {
    return 0;
  }
  const int64_t steps = parts(p->k, plan->tile_k) / kStepsOfPart;
  int n = TGI_GEMM_FEW_PARTS;
  while (n >= 2 && (plan->tiles > most[n] || n > steps)) {
    n--;
  }
  return n < 2 ? 0 : n;
}

/* Microseconds on an H200: what a step of 64 along k costs a tile, what a tile costs beside its
 * steps, in parts 2 more, and what the product costs beside its tiles. */
static double estimate(const tgi_gemm_problem *p, const tgi_gemm_plan *plan, int multiprocessors)
{
  const bool beside = plan->kernel == TGI_GEMM_SM90_TILES;
  const double step = plan->tile_n == kWideColumns ? 0.80 : plan->tile_n == kTileN ? 0.61 : 0.44;
  const double tile = beside ? 0.6 : plan->tile_n == kWideColumns ? 1.8 : plan->parts ? 3.1 : 1.1;
  const int64_t waves = parts(plan->tiles, multiprocessors), steps = parts(p->k, plan->tile_k);
  return 4 + (double)waves * (tile + step * (double)parts(steps, plan->parts ? plan->parts : 1));
}

tgi_gemm_plan tgi_gemm_plan_tiles_sm90(const tgi_gemm_problem *p, const tgi_gemm_device *device,
                                       int tile_n)
{
  const bool beside = tile_n == kTileN;
  const bool known = beside || tile_n == kWideColumns || tile_n == kNarrowColumns;
  tgi_gemm_plan plan = {.kernel = TGI_GEMM_NOT_TAKEN,
                        .reason =
                            known ? obstacle_to_dense(p) : "a width of tiles that no kernel has",
                        .fused = true,
                        .tile_m = kTileM,
                        .tile_n = tile_n,
                        .tile_k = kTileK,
                        .stages = tile_n == kNarrowColumns ? kDeepStages : kStages};
  if (!plan.reason && beside) {
    plan.reason = obstacle_to_beside(p);
  }
  if (!plan.reason && tile_n == kWideColumns && !p->c.vectors) {
    plan.reason = "rows that begin anywhere, for which narrow tiles alone have registers";
  }
  if (!plan.reason && tile_n != kWideColumns && has_long_rows(p)) {
    plan.reason = "sums in parts, which have wide tiles";
  }
  if (plan.reason) {
    return plan;
  }
  count_tiles(&plan, p, device);
  const size_t stage = kTileBytes + (size_t)plan.tile_n * 2 * kTileK;
  plan.shared = (size_t)plan.stages * stage;
  plan.shared += beside ? kAlignment + (size_t)plan.tile_n * 2 * kTileM + kBesideTiles
                        : (size_t)kInStepBytes + 2 * (size_t)plan.tile_n * 4 + kInStepBarriers;
  const int in_parts = parts_of_tile(p, &plan);
  if (plan.tiles > INT_MAX / 2 / (in_parts ? in_parts : 1)) {
    plan.reason = "more tiles, or parts of them, than 2^30";
  } else if ((int64_t)plan.shared > device->shared_bytes) {
    plan.reason = "a device with less shared memory";
  } else {
    plan.kernel = beside ? TGI_GEMM_SM90_TILES : TGI_GEMM_SM90_IN_STEP;
    plan.parts = in_parts;
    plan.blocks = plan.parts ? (int)plan.tiles * plan.parts : plan.blocks;
    plan.microseconds = estimate(p, &plan, device->multiprocessors);
  }
  return plan;
}

tgi_gemm_plan tgi_gemm_plan_dense_sm90(const tgi_gemm_problem *p, const tgi_gemm_device *device)
{
  static const int widths[] = {kTileN, kNarrowColumns};
  tgi_gemm_plan best = tgi_gemm_plan_tiles_sm90(p, device, kWideColumns);
  for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
    const tgi_gemm_plan plan = tgi_gemm_plan_tiles_sm90(p, device, widths[i]);
    if (plan.kernel != TGI_GEMM_NOT_TAKEN &&
        (best.kernel == TGI_GEMM_NOT_TAKEN || plan.microseconds < best.microseconds)) {
      best = plan;
    }
  }
  return best;
}

/* ---- bytes ---- */

static bool is_e4m3(const tgi_gemm_problem *p)
{
  return p->a.dtype == TG_F8_E4M3 && p->b.dtype == TG_F8_E4M3;
}

static bool is_int8(const tgi_gemm_problem *p)
{
  return p->a.dtype == TG_I8 && p->b.dtype == TG_I8;
}

static const char *obstacle_to_bytes(const tgi_gemm_problem *p)
{
  if (!(is_e4m3(p) || is_int8(p)) || p->a.major != TGI_GEMM_ALONG_K ||
      p->b.major != TGI_GEMM_ALONG_K) {
    return "operands that are not both e4m3 or both int8, along k";
  }
  if (p->m == 0 || p->n == 0 || p->k == 0) {
    return "nothing to multiply";
  }
  if (!p->a.vectors || !p->b.vectors || !p->c.vectors) {
    return "rows that do not begin at multiples of 16 bytes";
  }
  if (p->m > INT_MAX / 2 || p->n > INT_MAX / 2 || p->k > INT_MAX / 2) {
    return "extents above 2^30";
  }
  return NULL;
}

/* Microseconds on an H200; a step is 128 along k. */
static double estimate_bytes(const tgi_gemm_problem *p, const tgi_gemm_plan *plan,
                             int multiprocessors)
{
  const double step = plan->tile_n == kWideColumns ? 0.7 : 0.42;
  const int64_t waves = parts(plan->tiles, multiprocessors);
  return 4 + (double)waves * (1.5 + step * (double)parts(p->k, plan->tile_k));
}

static tgi_gemm_plan plan_bytes(const tgi_gemm_problem *p, const tgi_gemm_device *device,
                                int tile_n)
{
  tgi_gemm_plan plan = {.kernel = TGI_GEMM_NOT_TAKEN,
                        .reason = obstacle_to_bytes(p),
                        .fused = true,
                        .tile_m = kTileM,
                        .tile_n = tile_n,
                        .tile_k = 2 * kTileK,
                        .stages = tile_n == kNarrowColumns ? kDeepStages : kStages};
  if (plan.reason) {
    return plan;
  }
  count_tiles(&plan, p, device);
  plan.shared = (size_t)plan.stages * (kTileBytes + (size_t)plan.tile_n * 2 * kTileK) +
                kInStepBytes + 2 * (size_t)plan.tile_n * (is_int8(p) ? 5 : 4) + kInStepBarriers;
  if (plan.tiles > INT_MAX / 2) {
    plan.reason = "more tiles than 2^30";
  } else if ((int64_t)plan.shared > device->shared_bytes) {
    plan.reason = "a device with less shared memory";
  } else {
    plan.kernel = TGI_GEMM_SM90_IN_STEP;
    plan.microseconds = estimate_bytes(p, &plan, device->multiprocessors);
  }
  return plan;
}

tgi_gemm_plan tgi_gemm_plan_bytes_sm90(const tgi_gemm_problem *p, const tgi_gemm_device *device)
{
  const tgi_gemm_plan wide = plan_bytes(p, device, kWideColumns);
  const tgi_gemm_plan narrow = plan_bytes(p, device, kNarrowColumns);
  const bool better = wide.kernel == TGI_GEMM_NOT_TAKEN || narrow.microseconds < wide.microseconds;
  return narrow.kernel != TGI_GEMM_NOT_TAKEN && better ? narrow : wide;
}

/* ---- few rows ---- */

enum {
  kBlocksWanted = 132, /* an H200's multiprocessors, whatever the device: sums go by shapes */
  kStepsOfPart = 4     /* at least */
};

static int clamped(int64_t v, int64_t most)
{
  return (int)(v < 1 ? 1 : v > most ? most : v);
}

static const char *obstacle_to_few(const tgi_gemm_problem *p)
{
  if (!is_e4m3(p) && (!is_half(p->a.dtype) || p->a.dtype != p->b.dtype)) {
    return "operands that are not both f16, bf16 or e4m3";
  }
  if (p->m == 0 || p->n == 0 || p->k == 0) {
    return "nothing to multiply";
  }
  if (p->m > TGI_GEMM_FEW_ROWS) {
    return "more rows";
  }
  if (p->n > INT_MAX / 2 || p->k > INT_MAX / 2) {
    return "more columns than 2^30";
  }
  if ((p->k % kVector != 0 && !is_e4m3(p)) || !p->a.vectors || !p->b.vectors) {
    return "rows that are not whole vectors of 16 bytes";
  }
  return NULL;
}

tgi_gemm_plan tgi_gemm_plan_few_sm90(const tgi_gemm_problem *p)
{
  tgi_gemm_plan plan = {.kernel = TGI_GEMM_NOT_TAKEN, .reason = obstacle_to_few(p), .fused = true};
  if (plan.reason) {
    return plan;
  }
  plan.kernel = TGI_GEMM_SM90_FEW;
  plan.tile_m = p->m <= 8 ? 8 : p->m <= 16 ? 16 : p->m <= 32 ? 32 : 64;
  plan.tile_n = TGI_GEMM_FEW_OUTPUTS;
  plan.tile_k = is_e4m3(p) ? 2 * TGI_GEMM_FEW_STEP : TGI_GEMM_FEW_STEP;
  plan.row_tiles = 1;
  plan.tiles = plan.column_tiles = parts(p->n, plan.tile_n);
  const int64_t steps = parts(p->k, plan.tile_k);
  const int most = clamped(steps / kStepsOfPart, TGI_GEMM_FEW_PARTS);
  plan.parts = clamped(kBlocksWanted / plan.column_tiles, most);
  plan.blocks = (int)plan.tiles * plan.parts;
  if (plan.parts == 2 || plan.parts == 4) { /* larger clusters would not all be at work at once */
    plan.tile_n = TGI_GEMM_FEW_HALF;
    plan.tiles = plan.column_tiles = parts(p->n, plan.tile_n);
    plan.blocks = (int)plan.tiles * plan.parts / 2;
  }
  return plan;
}

/* ---- mma.sync ---- */

static const char *obstacle_to_mma(const tgi_gemm_problem *p)
{
  const bool rounds = p->a.dtype == TG_F32 && p->allow_tf32;
  if (p->a.dtype != p->b.dtype || !(is_half(p->a.dtype) || rounds)) {
    return "operands that are not both f16, both bf16, or both f32 that may be rounded to TF32";
  }
  if (p->c.dtype != p->a.dtype && p->c.dtype != TG_F32) {
    return "a result of another dtype";
  }
  if (p->a.major == TGI_GEMM_ACROSS_K && p->b.major == TGI_GEMM_ALONG_K) {
    return "A across k beside B along it";
  }
  if (p->m > INT_MAX / 2 || p->n > INT_MAX / 2 || p->k > INT_MAX / 2) {
    return "extents above 2^30";
  }
  return NULL;
}

tgi_gemm_plan tgi_gemm_plan_mma(const tgi_gemm_problem *p, const tgi_gemm_device *device)
{
  tgi_gemm_plan plan = {.kernel = TGI_GEMM_NOT_TAKEN, .reason = obstacle_to_mma(p), .fused = true};
  if (plan.reason) {
    return plan;
  }
  const int64_t large = parts(p->m, TGI_GEMM_MMA_LARGE) * parts(p->n, TGI_GEMM_MMA_LARGE);
  plan.kernel = TGI_GEMM_MMA;
  plan.tile_m = plan.tile_n = TGI_GEMM_MMA_MIDDLE;
  if (p->m <= TGI_GEMM_MMA_FEW_ROWS && p->a.major == TGI_GEMM_ALONG_K) {
    plan.tile_m = TGI_GEMM_MMA_FEW_ROWS;
    plan.tile_n = TGI_GEMM_MMA_FEW_COLUMNS;
  } else if (p->m > TGI_GEMM_MMA_MIDDLE && large >= device->multiprocessors &&
             device->shared_bytes >= TGI_GEMM_MMA_LARGE_BYTES) {
    plan.tile_m = plan.tile_n = TGI_GEMM_MMA_LARGE;
  }
  plan.row_tiles = parts(p->m, plan.tile_m);
  plan.column_tiles = parts(p->n, plan.tile_n);
  plan.tiles = plan.row_tiles * plan.column_tiles;
  return plan;
}

/* ---- text ---- */

static const char *form_of(const tgi_gemm_problem *p)
{
  if (p->a.major == TGI_GEMM_ACROSS_K) {
    return p->b.major == TGI_GEMM_ACROSS_K ? "TN" : "TT";
  }
  return p->b.major == TGI_GEMM_ACROSS_K ? "NN" : "NT";
}

void tgi_gemm_plan_text(const tgi_gemm_problem *p, const tgi_gemm_plan *plan, char *text,
                        size_t bytes)
{
  if (plan->kernel == TGI_GEMM_MMA) {
    snprintf(text, bytes, "mma.sync%s, %s, tiles of %d x %d", p->a.dtype == TG_F32 ? ", TF32" : "",
             form_of(p), plan->tile_m, plan->tile_n);
    return;
  }
  if (plan->kernel == TGI_GEMM_SM90_FEW) {
    snprintf(text, bytes, "wgmma, few rows: tiles of %d rows x %d columns, k in %d part%s",
             plan->tile_m, plan->tile_n, plan->parts, plan->parts > 1 ? "s" : "");
    return;
  }
  char groups[64] = "";
  if (p->grouped != TGI_GEMM_ONE_GROUP) {
    snprintf(groups, sizeof groups, "%lld groups of %s, ", (long long)p->groups,
             p->grouped == TGI_GEMM_GROUPS_OF_ROWS ? "rows" : "steps");
  }
  const bool in_step = plan->kernel == TGI_GEMM_SM90_IN_STEP;
  const char *behind = in_step && !p->c.vectors        ? ", stored in step by warps"
                       : in_step                       ? ", stored in step"
                       : p->epilogue == TGI_GEMM_STORE ? ""
                       : plan->fused                   ? ", the activation beside them"
                                                       : ", the activation behind them";
  char split[32] = "";
  if (plan->parts) {
    snprintf(split, sizeof split, "k in %d parts, ", plan->parts);
  }
  snprintf(text, bytes, "wgmma, %s, %stiles of %d x %d, %s%d stages of %d steps%s", form_of(p),
           groups, plan->tile_m, plan->tile_n, split, plan->stages, plan->tile_k, behind);
}
