/**
 * Tiles of tensors [index, row, head, dim], copied between memory and shared memory by one
 * thread (PTX: cp.async.bulk.tensor). From Hopper on.
 *
 * A page is up to 256 rows of 64 elements of one head (32 of f32, 128 of bytes), 128 bytes a row;
 * its 16-byte chunk c of row r lies at chunk c ^ r % 8, as products (wgmma.cuh) want it, and its
 * start is a multiple of 1024. What lies outside the tensor is read as zeros, and not written.
 */
#ifndef TGI_CUDA_TMA_CUH
#define TGI_CUDA_TMA_CUH

#include "cuda/mbarrier.cuh"
#include "cuda/vec.cuh"

#include <cuda.h>
#include <cudaTypedefs.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kPageCols = 64;
constexpr int kPageRow = 128; /* bytes */
/* A half page: rows of 64 bytes, whose chunk c lies at chunk c ^ r / 2 % 4. */
constexpr int kHalfPageCols = 32;
constexpr int kHalfPageRow = 64;

/** True if pages of the tensor can be copied: 16-bit elements, none of its extents 0, rows that
 * are 16-byte vectors. */
inline bool has_pages(const tg_tensor *t)
{
  bool taken =
      (t->dtype == TG_F16 || t->dtype == TG_BF16) && t->shape[3] % 8 == 0 && rows_aligned(t, 16);
  for (int axis = 0; axis < 4; axis++) {
    taken = taken && t->shape[axis] > 0 && t->shape[axis] < INT32_MAX &&
            tgi_stride(t, axis) < (int64_t)1 << 38;
  }
  return taken;
}

/** A matrix, or matrices [index, row, dim], as a tensor of one head. */
inline tg_tensor pages_of(const tg_tensor *t)
{
  tg_tensor v = {};
  const int row = t->ndim - 2; /* axis */
  v.data = t->data;
  v.dtype = t->dtype;
  v.device = t->device;
  v.ndim = 4;
  v.shape[0] = row ? t->shape[0] : 1;
  v.stride[0] = row ? tgi_stride(t, 0) : 0;
  v.shape[1] = t->shape[row];
  v.stride[1] = tgi_stride(t, row);
  v.shape[2] = 1;
  v.stride[2] = 0;
  v.shape[3] = t->shape[row + 1];
  v.stride[3] = 1;
  return v;
}

/** A map of a tensor that has pages, for pages of `rows` rows of so many bytes. */
inline tg_status make_page_map(const tg_context *ctx, const tg_tensor *t, int rows,
                               CUtensorMap *map, int row_bytes = kPageRow)
{
  static const int axes[4] = {3, 1, 2, 0};
  const int bytes_of = (int)tg_dtype_bytes(t->dtype);
  const cuuint32_t box[4] = {(cuuint32_t)(row_bytes / bytes_of), (cuuint32_t)rows, 1, 1};
  const cuuint32_t every[4] = {1, 1, 1, 1};
  cuuint64_t extent[4], step[4];
  for (int i = 0; i < 4; i++) {
    const int64_t bytes = bytes_of * tgi_stride(t, axes[i]);
    extent[i] = (cuuint64_t)t->shape[axes[i]];
    step[i] = (cuuint64_t)(t->shape[axes[i]] > 1 ? bytes : 16); /* one element: unused */
  }
  void *encode = NULL; /* the driver's own function: the library is not linked with it */
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                         cudaEnableDefault, &found);
  if (e != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return tgi_report(ctx, TG_DEVICE, "cuTensorMapEncodeTiled: expected it in the driver, got %s",
                      cudaGetErrorName(e));
  }
  const CUresult r = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
      map,
      t->dtype == TG_F32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
      : t->dtype == TG_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
      : bytes_of == 1      ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      4, t->data, extent, step + 1, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
      row_bytes == kPageRow ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r == CUDA_SUCCESS ? TG_OK
                           : tgi_report(ctx, TG_DEVICE,
                                        "cuTensorMapEncodeTiled: expected success, got %d", (int)r);
}

/** A map to make: of a tensor that has pages, for pages of `rows` rows of so many bytes. */
struct page_map {
  CUtensorMap *map;
  const tg_tensor *of;
  int rows;
  int row_bytes = kPageRow;
};

template <int kMaps> tg_status make_page_maps(const tg_context *ctx, const page_map (&maps)[kMaps])
{
  tg_status status = TG_OK;
  for (int i = 0; i < kMaps && status == TG_OK; i++) {
    status = make_page_map(ctx, maps[i].of, maps[i].rows, maps[i].map, maps[i].row_bytes);
  }
  return status;
}

/** Where a chunk of 8 elements, `chunk` of 0 .. 7, of a row of a page lies. */
__device__ __forceinline__ uint32_t page_chunk(uint32_t page, int row, int chunk)
{
  return page + (uint32_t)(row * kPageRow + ((chunk ^ row % 8) << 4));
}

/** The same of 0 .. 3 in a half page. */
__device__ __forceinline__ uint32_t half_page_chunk(uint32_t page, int row, int chunk)
{
  return page + (uint32_t)(row * kHalfPageRow + ((chunk ^ row / 2 % 4) << 4));
}

/** Prefetches a tensor map into the cache that TMA reads maps from. */
__device__ __forceinline__ void fetch_map(const CUtensorMap *map)
{
  asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/** Copies a page, elements from `col` and rows from `row` on, to shared memory; all its bytes, also
 * those outside the tensor, count on the barrier. Returns at once. */
__device__ __forceinline__ void load_page(uint32_t to, const CUtensorMap *map, int col, int row,
                                          int head, int index, mbarrier *b)
{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5}], [%6];"
               :
               : "r"(to), "l"(map), "r"(col), "r"(row), "r"(head), "r"(index),
                 "r"(shared_address(b))
               : "memory");
}

/** The other way round. Who wrote the page has called publish_to_copies, and a barrier followed. */
__device__ __forceinline__ void store_page(const CUtensorMap *map, int col, int row, int head,
                                           int index, uint32_t from)
{
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
               "[%0, {%1, %2, %3, %4}], [%5];"
               :
               : "l"(map), "r"(col), "r"(row), "r"(head), "r"(index), "r"(from)
               : "memory");
}

/** The same, adding f32 to what is there, each element in one rounding. */
__device__ __forceinline__ void add_page(const CUtensorMap *map, int col, int row, int head,
                                         int index, uint32_t from)
{
  asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
               "[%0, {%1, %2, %3, %4}], [%5];"
               :
               : "l"(map), "r"(col), "r"(row), "r"(head), "r"(index), "r"(from)
               : "memory");
}

/** Ends a group of this thread's stores. */
__device__ __forceinline__ void commit_stores()
{
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

/** Until this thread's stores have read shared memory. */
__device__ __forceinline__ void wait_for_store_reads()
{
  asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
}

/** Until all but the latest group of this thread's stores have read shared memory. */
__device__ __forceinline__ void wait_for_earlier_store_reads()
{
  asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

/** Makes this thread's writes to shared memory visible to copies and products. */
__device__ __forceinline__ void publish_to_copies()
{
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

} // namespace TGI_CUDA_ENTRY

#endif
