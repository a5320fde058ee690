/* Embedding on CUDA: the backward.
 *
 * Method     Tokens are sorted by id: a stable radix sort of digits of 9 bits, so that two passes
 *            serve vocabularies below 2^18. A pass finds each tile's places from the tiles' counts
 *            of digits and counts the next digits on the way; counts are integers, so the order
 *            in which they are added does not matter. Then each run of equal ids is summed in
 *            registers in token order, beginning with the old value, and written once. Positions
 *            that follow from the scalars need no sort: their runs are known.
 * Work       Sort: tiles of tokens, a block each. Sums: a warp for a strip of 32 vectors of the run
 *            that begins at a sorted place; warps at other places end at once.
 * Bound      Memory: reads dy once and updates the rows that occur. A run of very many tokens is
 *            bound by the latency of its warps' loads.
 */
#include "cuda/fault.cuh"
#include "cuda/int_list.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kDigitBits = 9, kDigits = 1 << kDigitBits; /* and threads of a block of the sort */
constexpr int kDigitWarps = kDigits / kWarp;
constexpr int kTilesMax = 128, kTileTokens = 1024; /* at least, if there are several */
constexpr int kSumThreads = 256;

/* ---- the sort ---- */

struct sort_job {
  int_list ids;
  int64_t tokens, rows; /* ids 0 .. rows - 1; others become `rows` and come last */
  int64_t tile_tokens;
  int tiles, shift;
  bool more;           /* passes after this one */
  const int64_t *from; /* tokens in the order so far; NULL: 0, 1, 2, ... */
  int64_t *to, *keys;  /* keys: written by the last pass */
  unsigned *counts;    /* [tiles, kDigits] of this pass; those of the next one follow */
  fault_site bad;
};

__device__ __forceinline__ int64_t key_of(const sort_job &job, int64_t token)
{
  const int64_t id = int_at(job.ids, token);
  return id >= 0 && id < job.rows ? id : job.rows;
}

/* Counts the first digits of a tile and records ids out of range. */
__global__ void __launch_bounds__(kDigits)
    embedding_bwd_count_kernel(const __grid_constant__ sort_job job)
{
  __shared__ unsigned counts[kDigits];
  const int64_t first = blockIdx.x * job.tile_tokens;
  const int64_t last = first + job.tile_tokens < job.tokens ? first + job.tile_tokens : job.tokens;
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t k = first + threadIdx.x; k < last; k += kDigits) {
    const int64_t key = key_of(job, k);
    if (key == job.rows) {
      record_fault(job.bad, k, int_at(job.ids, k), 0, job.rows - 1);
    }
    atomicAdd(&counts[key & (kDigits - 1)], 1u);
  }
  __syncthreads();
  job.counts[(int64_t)blockIdx.x * kDigits + threadIdx.x] = counts[threadIdx.x];
}

/* The place of the first token of this thread's digit in this tile: behind those of lower digits,
 * and of the same one in tiles before. */
__device__ __forceinline__ int64_t first_place(const sort_job &job, int64_t *warps)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int64_t before = 0, all = 0;
#pragma unroll 8
  for (int tile = 0; tile < job.tiles; tile++) {
    const int64_t count = job.counts[(int64_t)tile * kDigits + threadIdx.x];
    before += tile < (int)blockIdx.x ? count : 0;
    all += count;
  }
  int64_t up_to = all; /* over the lanes, then the warps */
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int64_t other = __shfl_up_sync(kAllLanes, up_to, step);
    up_to += lane >= step ? other : 0;
  }
  if (lane == kWarp - 1) {
    warps[warp] = up_to;
  }
  __syncthreads();
  for (int w = 0; w < warp; w++) {
    up_to += warps[w];
  }
  return up_to - all + before;
}

/* One stable pass over a tile: 512 tokens at a time, ranked among equal digits of their warp, then
 * over the warps. */
__global__ void __launch_bounds__(kDigits)
    embedding_bwd_place_kernel(const __grid_constant__ sort_job job)
{
  __shared__ int64_t place[kDigits], warps[kDigitWarps];
  __shared__ unsigned short ranks[kDigitWarps][kDigits];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = blockIdx.x * job.tile_tokens;
  const int64_t last = first + job.tile_tokens < job.tokens ? first + job.tile_tokens : job.tokens;
  place[threadIdx.x] = first_place(job, warps);
  for (int64_t start = first; start < last; start += kDigits) {
    const int64_t k = start + threadIdx.x;
    const bool there = k < last;
    const int64_t token = !there ? 0 : job.from ? job.from[k] : k;
    const int64_t key = there ? key_of(job, token) : 0;
    const int digit = there ? (int)(key >> job.shift & (kDigits - 1)) : kDigits;
    const unsigned same = __match_any_sync(kAllLanes, digit);
    const int rank = __popc(same & ((1u << lane) - 1));
    for (int w = 0; w < kDigitWarps; w++) {
      ranks[w][threadIdx.x] = 0;
    }
    __syncthreads();
    if (there && rank == 0) {
      ranks[warp][digit] = (unsigned short)__popc(same);
    }
    __syncthreads();
    unsigned sum = 0; /* of this thread's digit, over the warps */
    for (int w = 0; w < kDigitWarps; w++) {
      const unsigned count = ranks[w][threadIdx.x];
      ranks[w][threadIdx.x] = (unsigned short)sum;
      sum += count;
    }
    __syncthreads();
    if (there) {
      const int64_t at = place[digit] + ranks[warp][digit] + rank;
      job.to[at] = token;
      if (job.more) {
        unsigned *next = job.counts + (int64_t)job.tiles * kDigits;
        const int64_t next_digit = key >> (job.shift + kDigitBits) & (kDigits - 1);
        atomicAdd(&next[at / job.tile_tokens * kDigits + next_digit], 1u);
      } else {
        job.keys[at] = key;
      }
    }
    __syncthreads();
    place[threadIdx.x] += sum;
  }
}

/* ---- sums of runs ---- */

template <typename T, typename S> struct sum_job {
  const T *dy;
  S *sums; /* dtable or dpositions */
  int64_t tokens, dim, dy_step, sums_step;
  int64_t rows;   /* keys from here on are no ids */
  int64_t strips; /* of a row */
  int64_t places; /* where runs may begin */
  const int64_t *order, *keys;
  int64_t span, first_row; /* without keys: run r is the tokens r, r + span, ... */
};

/* Adds row `token` of dy for n lanes' tokens, lane by lane; kAhead loads at once. */
template <int kAhead, typename T, typename S, int N>
__device__ __forceinline__ void add_tokens(float (&sum)[N], const sum_job<T, S> &job, int64_t token,
                                           int begin, int end, int64_t j, bool mine)
{
  for (int i = begin; i < end; i += kAhead) {
    pack<T, N> v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const int64_t from = __shfl_sync(kAllLanes, token, (i + u) % kWarp);
      if (mine && i + u < end) {
        v[u] = *reinterpret_cast<const pack<T, N> *>(job.dy + from * job.dy_step + j);
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      if (mine && i + u < end) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          sum[e] += to_f32(v[u].e[e]);
        }
      }
    }
  }
}

template <typename T, typename S, int N>
__global__ void __launch_bounds__(kSumThreads, 2)
    embedding_bwd_sum_kernel(const __grid_constant__ sum_job<T, S> job)
{
  const int lane = threadIdx.x % kWarp, warps = kSumThreads / kWarp;
  const int64_t items = job.places * job.strips;
  for (int64_t item = (int64_t)blockIdx.x * warps + threadIdx.x / kWarp; item < items;
       item += (int64_t)gridDim.x * warps) {
    const int64_t place = item / job.strips;
    const int64_t j = ((item - place * job.strips) * kWarp + lane) * N;
    const bool mine = j < job.dim;
    int64_t row = job.first_row + place, step = job.span;
    if (job.keys) {
      row = job.keys[place];
      step = 1;
      if (row >= job.rows || (place > 0 && job.keys[place - 1] == row)) {
        continue; /* whole warps */
      }
    }
    float sum[N];
    S *to = job.sums + row * job.sums_step + j;
    if (mine) {
      load(sum, to);
    }
    int n = kWarp;
    for (int64_t start = place; n == kWarp; start += kWarp * step) {
      const int64_t at = start + lane * step;
      const bool same = at < job.tokens && (!job.keys || job.keys[at] == row);
      const int64_t token = !same ? 0 : job.keys ? job.order[at] : at;
      const unsigned others = ~__ballot_sync(kAllLanes, same);
      n = others ? __ffs((int)others) - 1 : kWarp;
      const int many = n / 8 * 8;
      add_tokens<8>(sum, job, token, 0, many, j, mine);
      add_tokens<2>(sum, job, token, many, n, j, mine);
    }
    if (mine) {
      store(to, sum);
    }
  }
}

/* ---- the call ---- */

/* How a sort of so many tokens is cut, and its share of the workspace. */
struct sort_plan {
  int64_t tile_tokens;
  int tiles, passes;
};

sort_plan plan_sort(int64_t tokens, int64_t rows)
{
  sort_plan p;
  p.tile_tokens = divide_up(tokens, kTilesMax);
  p.tile_tokens = p.tile_tokens < kTileTokens ? kTileTokens : p.tile_tokens;
  p.tiles = (int)divide_up(tokens, p.tile_tokens);
  p.passes = 1;
  /* The key `rows` stands for what is out of range. */
  while (p.passes < 7 && rows >> (p.passes * kDigitBits) > 0) {
    p.passes++;
  }
  return p;
}

/* [tokens] order, [tokens] spare, [tokens] keys as i64, then the counts of each pass. */
size_t sort_bytes(int64_t tokens, int64_t rows)
{
  const sort_plan p = plan_sort(tokens, rows);
  return (size_t)tokens * 3 * sizeof(int64_t) +
         (size_t)p.passes * (size_t)p.tiles * kDigits * sizeof(unsigned);
}

/* Where the sorted tokens and their keys are. */
struct sorted {
  const int64_t *order, *keys;
};

tg_status sort_tokens(const tg_context *ctx, const tg_tensor *ids, int64_t rows, fault_site bad,
                      void *workspace, sorted *out)
{
  const int64_t tokens = ids->shape[0];
  const sort_plan p = plan_sort(tokens, rows);
  int64_t *order = static_cast<int64_t *>(workspace), *spare = order + tokens;
  const size_t counts = (size_t)p.tiles * kDigits;
  sort_job job = {};
  job.ids = int_list_of(ids);
  job.tokens = tokens;
  job.rows = rows;
  job.tile_tokens = p.tile_tokens;
  job.tiles = p.tiles;
  job.keys = order + 2 * tokens;
  job.counts = reinterpret_cast<unsigned *>(order + 3 * tokens);
  job.bad = bad;
  tg_status status = p.passes == 1 ? TG_OK
                                   : fill_bytes(ctx, job.counts + counts, 0,
                                                (size_t)(p.passes - 1) * counts * sizeof(unsigned));
  if (status == TG_OK) {
    status = launch(ctx, embedding_bwd_count_kernel, grid_of(p.tiles), kDigits, 0, job);
  }
  for (int pass = 0; pass < p.passes && status == TG_OK; pass++) {
    job.to = pass % 2 ? spare : order;
    job.shift = pass * kDigitBits;
    job.more = pass + 1 < p.passes;
    status = launch(ctx, embedding_bwd_place_kernel, grid_of(p.tiles), kDigits, 0, job);
    job.from = job.to;
    job.counts += counts;
  }
  *out = {job.from, job.keys};
  return status;
}

/* keys NULL: runs that follow from seq_len and position_offset. */
template <typename T, typename S>
tg_status add_runs(const tg_context *ctx, const tg_embedding_bwd_args *a, const tg_tensor *sums,
                   sorted s)
{
  const int64_t tokens = a->dy.shape[0], dim = a->dy.shape[1];
  const bool vectors = dim % kLanes<T> == 0 && rows_aligned(&a->dy, 16) &&
                       rows_aligned(sums, kLanes<T> * (int)sizeof(S));
  sum_job<T, S> job = {};
  job.dy = static_cast<const T *>(a->dy.data);
  job.sums = static_cast<S *>(sums->data);
  job.tokens = tokens;
  job.dim = dim;
  job.dy_step = tgi_stride(&a->dy, 0);
  job.sums_step = tgi_stride(sums, 0);
  job.rows = sums->shape[0];
  job.strips = divide_up(dim, (int64_t)kWarp * (vectors ? kLanes<T> : 1));
  job.order = s.order;
  job.keys = s.keys;
  job.span = a->seq_len > 0 && a->seq_len < tokens ? a->seq_len : tokens;
  job.first_row = a->position_offset;
  job.places = s.keys ? tokens : job.span;
  const dim3 grid = grid_of(divide_up(job.places * job.strips, kSumThreads / kWarp));
  return vectors ? launch(ctx, embedding_bwd_sum_kernel<T, S, kLanes<T>>, grid, kSumThreads, 0, job)
                 : launch(ctx, embedding_bwd_sum_kernel<T, S, 1>, grid, kSumThreads, 0, job);
}

tg_status add_all(const tg_context *ctx, const tg_embedding_bwd_args *a, const tg_tensor *sums,
                  sorted s)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dy.dtype, T,
               status = sums->dtype == a->dy.dtype ? add_runs<T, T>(ctx, a, sums, s)
                                                   : add_runs<T, float>(ctx, a, sums, s));
  return status;
}

size_t larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(embedding_bwd)(const tg_context *, const tg_embedding_bwd_args *a)
{
  const int64_t tokens = a->dy.shape[0];
  const bool given = tgi_present(&a->dpositions) && tgi_present(&a->position_ids);
  const size_t table = tgi_present(&a->dtable) ? sort_bytes(tokens, a->dtable.shape[0]) : 0;
  return larger(table, given ? sort_bytes(tokens, a->dpositions.shape[0]) : 0);
}

extern "C" tg_status TGI_KERNEL(embedding_bwd)(const tg_context *ctx,
                                               const tg_embedding_bwd_args *a)
{
  tg_status status = TG_OK;
  sorted s = {};
  if (tgi_present(&a->dtable)) {
    status = sort_tokens(ctx, &a->ids, a->dtable.shape[0], FAULT_SITE(ctx, embedding_bwd, ids),
                         a->workspace, &s);
    if (status == TG_OK) {
      status = add_all(ctx, a, &a->dtable, s);
    }
  }
  if (!tgi_present(&a->dpositions) || status != TG_OK) {
    return status;
  }
  s = {};
  if (tgi_present(&a->position_ids)) {
    status = sort_tokens(ctx, &a->position_ids, a->dpositions.shape[0],
                         FAULT_SITE(ctx, embedding_bwd, position_ids), a->workspace, &s);
  }
  return status == TG_OK ? add_all(ctx, a, &a->dpositions, s) : status;
}

extern "C" void TGI_PLAN(embedding_bwd)(const tg_context *, const tg_embedding_bwd_args *a,
                                        char *text, size_t bytes)
{
  const sort_plan p = plan_sort(a->dy.shape[0], a->dtable.shape[0]);
  snprintf(text, bytes, "%lld tokens sorted by id in %d passes of %d tiles, a warp for a strip",
           (long long)a->dy.shape[0], p.passes, p.tiles);
}
