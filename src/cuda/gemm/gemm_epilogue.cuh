/**
 * What becomes of a tile of sums that gemm_sm90.cuh has left in shared memory: the work of its
 * three spare warps, 16 bytes of memory a thread at a time.
 */
#ifndef TGI_CUDA_GEMM_EPILOGUE_CUH
#define TGI_CUDA_GEMM_EPILOGUE_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/gemm/sm90/gemm_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr uint32_t kGemmNan = 0xffffffffu; /* in f32, and twice in f16 and bf16 */
constexpr int kGemmAtOnce = 4;             /* vectors of a thread in flight */

/** A tile's rows that exist. */
__device__ __forceinline__ int gemm_rows_of(const gemm_place &p)
{
  return p.rows < kGemmTileM ? p.rows : kGemmTileM;
}

/** 8 rounded elements, or 4 sums, of a row, `chunk` of 0 .. kN / 8 - 1; NaN if `bad`. */
template <typename Form>
__device__ __forceinline__ void gemm_vector(uint32_t (&w)[4], const gemm_shared &s, int row,
                                            int chunk, bool bad)
{
  load_shared(w, gemm_sums_at<Form>(s, row, chunk));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    w[i] |= bad ? kGemmNan : 0;
  }
}

/** Starts copies of the blocks of 64 rows that exist as a whole, columns from `column` on, each
 * `block_columns` wide; `adds`: f32 that is added to what is there. What lies outside of the matrix
 * is not written. By one thread, which waits for the copies' reads (wait_for_store_reads). */
template <typename Form>
__device__ __forceinline__ void gemm_copy_blocks(const gemm_shared &s, const CUtensorMap *c,
                                                 int column, int row, int group, int rows,
                                                 int block_columns, bool adds)
{
  for (int half = 0; half < 2 && 64 * half < rows; half++) {
    const uint32_t from = s.result + half * (Form::kResult / 2);
    for (int block = 0; block < Form::kN / 64; block++) {
      const int to = column + block * block_columns;
      if (adds) {
        add_page(c, to, row + 64 * half, 0, group, from + block * kGemmBlock);
      } else {
        store_page(c, to, row + 64 * half, 0, group, from + block * kGemmBlock);
      }
    }
  }
  commit_stores();
}

/**
 * Rows of T with a bias, and where `act` is wanted an activation of pairs of columns.
 *
 *   z = sums + bias       rounded to T; stored where there is memory for it
 *   y = act(gate, up)     of the rounded z; halves: gate is a tile's first half of columns, up its
 *                         second; else gate and up are neighbours
 *
 * A tile's columns are two runs: they follow each other, but in halves, where the second run lies
 * `half` columns behind the first. z is copied by TMA in blocks of 64 rows, but in halves, and
 * where a block ends within a group: there threads store it.
 */
template <typename T, typename Act> struct gemm_rows_epilogue {
  static constexpr bool kMayTakeSums = false;
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype;
  int64_t bias_step; /* of groups */
  T *z, *y;          /* NULL: not wanted */
  int64_t z_step, y_step;
  int n;    /* columns of z */
  int half; /* of gated halves n / 2; else 0 */
  int run;  /* columns: half of a tile */
  Act act;

  __device__ __forceinline__ int first_column(int column_tile) const
  {
    return half ? column_tile * run : 2 * column_tile * run;
  }

  __device__ __forceinline__ int second_column(int column_tile) const
  {
    return first_column(column_tile) + (half ? half : run);
  }

  __device__ __forceinline__ bool takes_sums() const
  {
    return false;
  }

  __device__ __forceinline__ bool has_bias() const
  {
    return bias != nullptr;
  }

  __device__ __forceinline__ void prepare(float *to, const gemm_place &p, int thread) const
  {
    if (!bias) {
      return;
    }
    const int first = first_column(p.column_tile), second = second_column(p.column_tile);
    for (int i = thread; i < 2 * run; i += kGemmFinishers) {
      const int column = i < run ? first + i : second + i - run;
      to[i] = column < n ? load_any(bias, bias_dtype, p.group * bias_step + column) : 0.0f;
    }
  }

  /** Column of z of the tile's chunk of 8, n or more if it does not exist. */
  __device__ __forceinline__ int column_of(const gemm_place &p, int chunk) const
  {
    const int at = 8 * chunk, first = first_column(p.column_tile);
    if (!half) {
      return first + at;
    }
    const int within = first + (at < run ? at : at - run);
    return within >= half ? n : at < run ? within : within + half;
  }

  /** Rows [begin, end) of z; a thread has one chunk of every few rows. */
  template <typename Form>
  __device__ __forceinline__ void store_z(const gemm_shared &s, const gemm_place &p, int begin,
                                          int end, int thread) const
  {
    constexpr int kChunks = Form::kN / 8, kDown = kGemmFinishers / kChunks;
    const int chunk = thread % kChunks, column = column_of(p, chunk);
    const bool exists = column < n, bad = s.ends.bad;
    T *to = z + p.row * z_step + column;
    for (int row = begin + thread / kChunks; row < end && exists; row += kGemmAtOnce * kDown) {
      uint32_t w[kGemmAtOnce][4];
#pragma unroll
      for (int i = 0; i < kGemmAtOnce; i++) { /* rows that do not exist are in shared memory, too */
        gemm_vector<Form>(w[i], s, (row + i * kDown) % kGemmTileM, chunk, bad);
      }
#pragma unroll
      for (int i = 0; i < kGemmAtOnce; i++) {
        if (row + i * kDown < end) {
          store_words(to + (row + i * kDown) * z_step, w[i]);
        }
      }
    }
  }

  /** 8 of y from two chunks of z. */
  __device__ __forceinline__ void activate(uint32_t (&to)[4], const uint32_t (&first)[4],
                                           const uint32_t (&second)[4]) const
  {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float v[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = 2 * i + j; /* of y */
        const uint32_t pair = at < 4 ? first[at % 4] : second[at % 4];
        const float gate = half ? half_of<T>(first[i], j) : half_of<T>(pair, 0);
        const float up = half ? half_of<T>(second[i], j) : half_of<T>(pair, 1);
        v[j] = act(gate, up);
      }
      to[i] = round_pair<T>(v[0], v[1]);
    }
  }

  template <typename Form>
  __device__ __forceinline__ void store_y(const gemm_shared &s, const gemm_place &p, int rows,
                                          int thread) const
  {
    constexpr int kChunks = Form::kN / 16, kDown = kGemmFinishers / kChunks;
    const int chunk = thread % kChunks;
    const int a_chunk = half ? chunk : 2 * chunk, b_chunk = half ? chunk + kChunks : 2 * chunk + 1;
    const int column = first_column(p.column_tile) / (half ? 1 : 2) + 8 * chunk;
    T *to = y + p.row * y_step + column;
    for (int row = thread / kChunks; row < rows && column < n / 2; row += kDown) {
      uint32_t a[4], b[4], w[4];
      gemm_vector<Form>(a, s, row, a_chunk, s.ends.bad);
      gemm_vector<Form>(b, s, row, b_chunk, s.ends.bad);
      activate(w, a, b);
      store_words(to + row * y_step, w);
    }
  }

  template <typename Form>
  __device__ __forceinline__ void finish(const gemm_shared &s, const CUtensorMap *c,
                                         const gemm_place &p, int, int thread) const
  {
    const int rows = gemm_rows_of(p);
    const bool copies = z && !half && !s.ends.bad;
    const int copied = copies ? rows / 64 * 64 : 0;
    if (thread == 0 && copied > 0) {
      gemm_copy_blocks<Form>(s, c, first_column(p.column_tile), p.row, 0, copied, 64, false);
    }
    if (z) {
      store_z<Form>(s, p, copied, rows, thread);
    }
    if (y) {
      store_y<Form>(s, p, rows, thread);
    }
    if (thread == 0) {
      wait_for_store_reads();
    }
  }

  /** Rows of no group: z is 0, and so is the activation of 0. */
  __device__ __forceinline__ void fill(const gemm_place &p, bool bad, int thread) const
  {
    const int rows = gemm_rows_of(p), chunks = run / 4;
    const uint32_t v = bad ? kGemmNan : 0, w[4] = {v, v, v, v};
    const int first = first_column(p.column_tile) / (half ? 1 : 2);
    for (int i = thread; i < rows * chunks; i += kGemmFinishers) {
      const int row = i / chunks, chunk = i % chunks, column = column_of(p, chunk);
      if (z && column < n) {
        store_words(z + (p.row + row) * z_step + column, w);
      }
      const int y_column = first + 8 * chunk;
      if (y && chunk < chunks / 2 && y_column < n / 2) {
        store_words(y + (p.row + row) * y_step + y_column, w);
      }
    }
  }
};

/**
 * C = or += the sums, a matrix for each group, of T or f32, by TMA, which adds f32 in memory: each
 * element once, so in one order. Sums that are rounded to T and overwrite come rounded, all others
 * as f32 in two pieces. Threads add to T, and write NaN.
 */
template <typename T> struct gemm_sums_epilogue {
  static constexpr bool kMayTakeSums = true;
  void *c;
  int64_t group_step, row_step;
  int n, run;
  bool is_f32, adds;

  __device__ __forceinline__ int first_column(int column_tile) const
  {
    return 2 * column_tile * run;
  }

  __device__ __forceinline__ int second_column(int column_tile) const
  {
    return first_column(column_tile) + run;
  }

  __device__ __forceinline__ bool takes_sums() const
  {
    return is_f32 || adds;
  }

  __device__ __forceinline__ bool has_bias() const
  {
    return false;
  }

  __device__ __forceinline__ void prepare(float *, const gemm_place &, int) const {}

  __device__ __forceinline__ void fill(const gemm_place &, bool, int) const {}

  /** A tile of T, or a piece that is added to T, or NaN: by the threads. */
  template <typename Form>
  __device__ __forceinline__ void store_all(const gemm_shared &s, const gemm_place &p, int piece,
                                            int thread) const
  {
    constexpr int kChunks = Form::kN / 8, kDown = kGemmFinishers / kChunks;
    const int wide = takes_sums() ? 4 : 8, chunk = thread % kChunks, rows = gemm_rows_of(p);
    const int column = first_column(p.column_tile) + piece * run + wide * chunk;
    const bool bad = s.ends.bad;
    int64_t at = p.group * group_step + (p.row + thread / kChunks) * row_step + column;
    for (int row = thread / kChunks; row < rows && column < n; row += kDown) {
      uint32_t w[4];
      gemm_vector<Form>(w, s, row, chunk, bad);
      if (is_f32) {
        store_words(static_cast<float *>(c) + at, w);
      } else if (!adds) {
        store_words(static_cast<T *>(c) + at, w);
      } else {
        T *to = static_cast<T *>(c) + at;
        float v[4];
        load(v, to);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          v[i] += __uint_as_float(w[i]);
        }
        store(to, v);
      }
      at += kDown * row_step;
    }
  }

  template <typename Form>
  __device__ __forceinline__ void finish(const gemm_shared &s, const CUtensorMap *map,
                                         const gemm_place &p, int piece, int thread) const
  {
    if (s.ends.bad || (adds && !is_f32)) {
      store_all<Form>(s, p, piece, thread);
    } else if (thread == 0) {
      gemm_copy_blocks<Form>(s, map, first_column(p.column_tile) + piece * run, p.row, p.group,
                             gemm_rows_of(p), is_f32 ? 32 : 64, adds);
      wait_for_store_reads();
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
