/* Embedding on CUDA: the forward. embedding_bwd.cu has the backward.
 *
 * Method     Gather rows, adding the position's row where there is one. A row whose id is out of
 *            range is NaN and recorded.
 * Work       Four vectors of 16 bytes of y for each thread, a block's width apart: a load waits for
 *            the id before it, so several are under way. Rows that are not aligned, or no multiple
 *            of 16 bytes, go by elements.
 * Bound      Memory: reads a row for each token and writes one.
 */
#include "cuda/fault.cuh"
#include "cuda/int_list.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

#include <math_constants.h>

namespace
{

constexpr int kThreads = 256, kEach = 4; /* vectors of a thread */

template <typename T> struct fwd_job {
  const T *table, *positions; /* positions NULL: none */
  T *y;
  int_list ids, position_ids;
  int64_t tokens, dim, vocab, max_positions;
  int64_t table_step, positions_step, y_step; /* elements from row to row */
  int64_t seq_len, position_offset;
  int64_t row_vectors, blocks;
  fault_site bad_id, bad_position;
};

template <typename T>
__device__ __forceinline__ int64_t position_of(const fwd_job<T> &job, int64_t i)
{
  if (job.position_ids.data) {
    return int_at(job.position_ids, i);
  }
  return job.position_offset + (job.seq_len > 0 ? i % job.seq_len : i);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    embedding_fwd_kernel(const __grid_constant__ fwd_job<T> job)
{
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    int64_t row[kEach], id[kEach], position[kEach];
    int64_t first[kEach]; /* element of the row */
    bool there[kEach];    /* false past the last row */
    pack<T, N> v[kEach], p[kEach];
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      const int64_t vector = (block * kEach + k) * kThreads + threadIdx.x;
      row[k] = vector / job.row_vectors;
      first[k] = (vector - row[k] * job.row_vectors) * N;
      there[k] = row[k] < job.tokens;
      id[k] = there[k] ? int_at(job.ids, row[k]) : 0;
      position[k] = there[k] && job.positions ? position_of(job, row[k]) : 0;
    }
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      const bool known = id[k] >= 0 && id[k] < job.vocab;
      const bool placed = !job.positions || (position[k] >= 0 && position[k] < job.max_positions);
      if (there[k] && first[k] == 0) {
        if (!known) {
          record_fault(job.bad_id, row[k], id[k], 0, job.vocab - 1);
        }
        if (!placed) {
          record_fault(job.bad_position, row[k], position[k], 0, job.max_positions - 1);
        }
      }
      if (there[k] && known && placed) {
        v[k] = *reinterpret_cast<const pack<T, N> *>(job.table + id[k] * job.table_step + first[k]);
        if (job.positions) {
          p[k] = *reinterpret_cast<const pack<T, N> *>(job.positions +
                                                       position[k] * job.positions_step + first[k]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < N; i++) {
          v[k].e[i] = p[k].e[i] = from_f32<T>(CUDART_NAN_F);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      if (there[k]) {
        if (job.positions) {
#pragma unroll
          for (int i = 0; i < N; i++) {
            v[k].e[i] = from_f32<T>(to_f32(v[k].e[i]) + to_f32(p[k].e[i]));
          }
        }
        *reinterpret_cast<pack<T, N> *>(job.y + row[k] * job.y_step + first[k]) = v[k];
      }
    }
  }
}

bool in_vectors(const tg_embedding_fwd_args *a)
{
  return a->y.shape[1] * (int64_t)tg_dtype_bytes(a->y.dtype) % 16 == 0 &&
         rows_aligned(&a->table, 16) && rows_aligned(&a->y, 16) &&
         (!tgi_present(&a->positions) || rows_aligned(&a->positions, 16));
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_embedding_fwd_args *a)
{
  const bool vectors = in_vectors(a), positions = tgi_present(&a->positions);
  fwd_job<T> job = {};
  job.table = static_cast<const T *>(a->table.data);
  job.positions = positions ? static_cast<const T *>(a->positions.data) : NULL;
  job.y = static_cast<T *>(a->y.data);
  job.ids = int_list_of(&a->ids);
  job.position_ids = int_list_of(&a->position_ids);
  job.tokens = a->ids.shape[0];
  job.dim = a->table.shape[1];
  job.vocab = a->table.shape[0];
  job.max_positions = positions ? a->positions.shape[0] : 0;
  job.table_step = tgi_stride(&a->table, 0);
  job.positions_step = positions ? tgi_stride(&a->positions, 0) : 0;
  job.y_step = tgi_stride(&a->y, 0);
  job.seq_len = a->seq_len;
  job.position_offset = a->position_offset;
  job.row_vectors = vectors ? job.dim / kLanes<T> : job.dim;
  job.blocks = divide_up(job.tokens * job.row_vectors, (int64_t)kThreads * kEach);
  job.bad_id = FAULT_SITE(ctx, embedding_fwd, ids);
  job.bad_position = FAULT_SITE(ctx, embedding_fwd, position_ids);
  const dim3 grid = grid_of(job.blocks);
  return vectors ? launch(ctx, embedding_fwd_kernel<T, kLanes<T>>, grid, kThreads, 0, job)
                 : launch(ctx, embedding_fwd_kernel<T, 1>, grid, kThreads, 0, job);
}

} // namespace

extern "C" tg_status TGI_KERNEL(embedding_fwd)(const tg_context *ctx,
                                               const tg_embedding_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->table.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(embedding_fwd)(const tg_context *, const tg_embedding_fwd_args *a,
                                        char *text, size_t bytes)
{
  snprintf(text, bytes, "%d %s a thread, %d threads a block", kEach,
           in_vectors(a) ? "vectors of 16 bytes" : "elements", kThreads);
}
