/* Attention backward by mma.sync, on GPUs from compute capability 8.0 on.
 *
 * Method     As in attention_bwd.cu (arXiv:2307.08691, section 3.1): delta; then dq, and dk with
 * dv, each with the scores made anew by tensor cores, so that every element is one sum in a fixed
 * order. p and the gradients of scores, rounded, are operands out of registers. Work       dq: a
 * block for 128 queries of a head, as in the forward. dk, dv: a block for 128 keys of a kv head,
 * which takes the queries of its group's heads one after the other. Bits       An element's depend
 * on extents, mask, head_dim and shared memory. Bound      Tensor cores and shared memory: 7
 * products of tiles where the fewest possible are 5. Takes      As attention_sm80.cu, heads of up
 * to 128 elements; all else goes to the kernels of attention_bwd.cu.
 */
#include "ops/attention/attention_bwd_calls.cuh"
#include "ops/attention/attention_bwd_keys_sm80.cuh"
#include "ops/attention/attention_bwd_queries_sm80.cuh"
#include "ops/attention/attention_list.cuh"
#include "ops/attention/attention_plan_sm80.cuh"
#include "ops/attention/attention_portable.cuh"

namespace
{

constexpr int kTileRows = 128;

struct bwd_plan {
  bool taken, lengths;
  bool adds; /* dq is summed by the kernel of dk and dv */
  tgi_attention_layout l;
  int window, elements, keys, shift; /* keys: of a block, in dq */
  int queries;                       /* of a block, in dk and dv */
  int64_t places;                    /* of tiles of queries */
  int64_t sums;                      /* blocks of them that dq is summed in */
  size_t records, list, terms, bytes;
};

bool has_vectors_if_present(const tg_tensor *t)
{
  return !tgi_present(t) || has_vectors(t);
}

bwd_plan plan_bwd(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  bwd_plan p = {};
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const int64_t widest = l.head_dim > l.v_dim ? l.head_dim : l.v_dim;
  p.l = l;
  p.taken = widest <= 128 && l.nq < kMostRows && l.extent < kMostRows && l.batch > 0 &&
            l.batch * l.q_heads * divide_up(l.nq, 64) < INT32_MAX / 2 &&
            l.batch * l.kv_heads * divide_up(l.extent, 64) < INT32_MAX / 2 &&
            (a->window < kMostWindow || !tgi_present(&a->query_start)) && has_vectors(&a->q) &&
            has_vectors(&a->k) && has_vectors(&a->v) && has_vectors(&a->out) &&
            has_vectors(&a->dout) && has_vectors_if_present(&a->dq) &&
            has_vectors_if_present(&a->dk) && has_vectors_if_present(&a->dv);
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.elements = widest <= 64 ? 64 : widest <= 96 ? 96 : 128;
  p.keys = p.elements == 64 ? 64 : 32;
  p.queries = p.elements == 64 ? 32 : 64;
  p.lengths = has_lengths(l, &a->key_start, &a->key_count, &a->query_start);
  p.places = tile_places(l.batch, l.nq, l.packed_q, kTileRows);
  p.records = record_bytes(l, p.lengths);
  p.list =
      p.lengths
          ? (offsetof(query_list, place) + (size_t)p.places * sizeof(query_place) + 255) / 256 * 256
          : 0;
  const size_t rows = (size_t)(a->q.shape[0] * l.q_heads * l.nq);
  p.adds = a->allow_nondeterministic && tgi_present(&a->dq) &&
           (tgi_present(&a->dk) || tgi_present(&a->dv)) &&
           (p.elements == 64 || ctx->device->shared_bytes >= kMediumShared);
  p.terms = (rows * sizeof(float) + 255) / 256 * 256;
  p.sums = p.adds ? tile_places(l.batch, l.nq, l.packed_q, p.queries) * l.q_heads : 0;
  p.bytes =
      p.records + p.list + p.terms + (size_t)(p.sums * p.queries * p.elements) * sizeof(float);
  while (l.extent / p.keys >> p.shift >= kCosts) {
    p.shift++;
  }
  return p;
}

bwd_tiles_job job_of(const tg_attention_bwd_args *a, const bwd_plan &p)
{
  bwd_tiles_job job = {};
  char *const memory = static_cast<char *>(a->workspace);
  query_work &w = job.work;
  w.rule = {a->causal, p.window};
  w.q_heads = (int)p.l.q_heads;
  w.group = (int)p.l.group;
  w.nq = (int)p.l.nq;
  w.extent = (int)p.l.extent;
  w.size = kTileRows;
  w.keys = p.keys;
  w.tiles = (int)divide_up(p.l.nq, kTileRows);
  w.parts = (int)divide_up(p.l.nq, kGroupRows) / w.tiles;
  w.parts_more = (int)divide_up(p.l.nq, kGroupRows) % w.tiles;
  w.pairs = (int)(p.l.batch * p.l.q_heads);
  w.chunk = w.pairs;
  w.half = w.tiles;
  w.longest_first = a->causal && p.window == 0 && !p.lengths;
  w.list = p.lengths ? reinterpret_cast<query_list *>(memory + p.records) : NULL;
  job.c.l = p.l;
  job.c.records = p.lengths ? reinterpret_cast<tgi_attention_sequence *>(memory) : NULL;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.q = view_of<const uint16_t>(&a->q);
  job.k = view_of<const uint16_t>(&a->k);
  job.v = view_of<const uint16_t>(&a->v);
  job.out = view_of<const uint16_t>(&a->out);
  job.dout = view_of<const uint16_t>(&a->dout);
  job.dq = view_of<uint16_t>(&a->dq);
  job.dk = view_of<uint16_t>(&a->dk);
  job.dv = view_of<uint16_t>(&a->dv);
  job.lse = static_cast<const float *>(a->lse.data);
  job.delta = reinterpret_cast<float *>(memory + p.records + p.list);
  job.sums = p.adds ? job.delta + p.terms / sizeof(float) : NULL;
  job.head_dim = (int)p.l.head_dim;
  job.v_dim = (int)p.l.v_dim;
  job.key_items = tile_places(p.l.batch, p.l.extent, p.l.packed_k, kTileRows) * p.l.kv_heads;
  job.scale = a->scale;
  job.softcap = a->softcap;
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
  return job;
}

/** What the tiles need on the device before: records and a list of tiles. */
tg_status prepare_lengths(const tg_context *ctx, const tg_attention_bwd_args *a, const bwd_plan &p,
                          const bwd_tiles_job &job)
{
  tg_status status = read_lengths(ctx, a, p.l);
  if (status == TG_OK) {
    status = launch(ctx, attention_list_kernel, dim3(1), kListThreads, 0, job.c, job.work, p.places,
                    p.shift);
  }
  return status;
}

template <typename S>
tg_status run_queries(const tg_context *ctx, const bwd_plan &p, const bwd_tiles_job &job)
{
  return launch(ctx, attention_bwd_dq_tiles_kernel<S>, grid_of(p.places * p.l.q_heads), S::kThreads,
                sizeof(queries_shared<S>), job);
}

template <typename S> tg_status run_keys(const tg_context *ctx, const bwd_tiles_job &job)
{
  return launch(ctx, attention_bwd_dkv_tiles_kernel<S>, grid_of(job.key_items), S::kThreads,
                sizeof(keys_shared<S>), job);
}

/** dq by a kernel of its own. */
template <typename T>
tg_status run_dq(const tg_context *ctx, const bwd_plan &p, const bwd_tiles_job &job)
{
  switch (p.elements) {
  case 64:
    return run_queries<bwd_queries_shape<T, 64, 64, 2, 4, 2>>(ctx, p, job);
  case 96:
    return run_queries<bwd_queries_shape<T, 96, 32, 2, 4, 2>>(ctx, p, job);
  default:
    return run_queries<bwd_queries_shape<T, 128, 32, 2, 4, 2>>(ctx, p, job);
  }
}

/** dk and dv, in a fixed order. */
template <typename T>
tg_status run_dkv(const tg_context *ctx, const bwd_plan &p, const bwd_tiles_job &job)
{
  switch (p.elements) {
  case 64:
    return run_keys<bwd_keys_shape<T, 64, 32, 2, 4, 1, 2, false>>(ctx, job);
  case 96:
    return run_keys<bwd_keys_shape<T, 96, 64, 1, 8, 1, 1, false>>(ctx, job);
  default:
    return ctx->device->shared_bytes < kMediumShared
               ? run_keys<bwd_keys_shape<T, 128, 32, 1, 8, 1, 1, false>>(ctx, job)
               : run_keys<bwd_keys_shape<T, 128, 64, 2, 8, 2, 1, false>>(ctx, job);
  }
}

/** All three, in no fixed order. */
template <typename S>
tg_status run_added(const tg_context *ctx, const bwd_plan &p, const bwd_tiles_job &job)
{
  static_assert(S::kQueries == (S::kD == 64 ? 32 : 64), "as the plan says");
  tg_status status = fill_bytes(ctx, job.sums, 0, p.bytes - p.records - p.list - p.terms);
  if (status == TG_OK) {
    status = run_keys<S>(ctx, job);
  }
  if (status == TG_OK) {
    status = launch(ctx, attention_bwd_dq_sums_kernel<S>, grid_of(p.sums), kDeltaThreads, 0, job);
  }
  return status;
}

template <typename T>
tg_status run_adding(const tg_context *ctx, const bwd_plan &p, const bwd_tiles_job &job)
{
  switch (p.elements) {
  case 64:
    return run_added<bwd_keys_shape<T, 64, 32, 2, 4, 1, 2, true>>(ctx, p, job);
  case 96:
    return run_added<bwd_keys_shape<T, 96, 64, 1, 8, 1, 1, true>>(ctx, p, job);
  default:
    return run_added<bwd_keys_shape<T, 128, 64, 2, 8, 2, 1, true>>(ctx, p, job);
  }
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_attention_bwd_args *a, const bwd_plan &p)
{
  const bwd_tiles_job job = job_of(a, p);
  const int64_t squares = divide_up(p.l.nq, 16) * p.l.q_heads * a->q.shape[0];
  tg_status status = p.lengths ? prepare_lengths(ctx, a, p, job) : TG_OK;
  if (status == TG_OK) {
    status =
        launch(ctx, attention_bwd_delta_tiles_kernel<T>,
               grid_of(divide_up(squares, kDeltaThreads / kWarp)), kDeltaThreads, 0, job, squares);
  }
  if (status == TG_OK && p.adds) {
    status = run_adding<T>(ctx, p, job);
  }
  if (status == TG_OK && !p.adds && tgi_present(&a->dq)) {
    status = run_dq<T>(ctx, p, job);
  }
  if (status == TG_OK && !p.adds && (tgi_present(&a->dk) || tgi_present(&a->dv))) {
    status = run_dkv<T>(ctx, p, job);
  }
  return status == TG_OK ? add_to_sinks(ctx, a, p.l, job.delta) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const tg_attention_bwd_args shapes = shapes_alone(*a);
  const size_t plain = plain_attention_bwd_bytes(a), bytes = plan_bwd(ctx, &shapes).bytes;
  return bytes > plain ? bytes : plain;
}

extern "C" tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const bwd_plan p = plan_bwd(ctx, a);
  if (!p.taken) {
    return run_plain_attention_bwd(ctx, a);
  }
  return a->q.dtype == TG_F16 ? run_bwd<f16>(ctx, a, p) : run_bwd<bf16>(ctx, a, p);
}

extern "C" void TGI_PLAN(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a,
                                        char *text, size_t bytes)
{
  const bwd_plan p = plan_bwd(ctx, a);
  if (!p.taken) {
    tell_plain_attention_bwd(a, text, bytes);
    return;
  }
  snprintf(text, bytes, "mma, tiles of %d, %d elements, dq %s, %s", kTileRows, p.elements,
           p.adds ? "added up with dk and dv" : "apart from dk and dv",
           p.lengths   ? "listed"
           : a->causal ? "longest first"
                       : "in order");
}
