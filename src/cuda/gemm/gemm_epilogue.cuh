/**
 * What becomes of a tile of sums that gemm_sm90.cuh has left in shared memory: the work of its
 * three spare warps, 16 bytes of memory a thread at a time.
 */
#ifndef TGI_CUDA_GEMM_EPILOGUE_CUH
#define TGI_CUDA_GEMM_EPILOGUE_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/gemm/gemm_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr uint32_t kGemmNan = 0xffffffffu; /* in f32, and twice in f16 and bf16 */

/** 8 rounded elements of a row, `chunk` of 0 .. kN / 8 - 1; NaN if `bad`. */
template <typename Form>
__device__ __forceinline__ void gemm_rounded(uint32_t (&w)[4], const gemm_shared &s, int row,
                                             int chunk, bool bad)
{
  const uint32_t block = s.result + row / 64 * (Form::kResult / 2) + chunk / 8 * kGemmBlock;
  load_shared(w, page_chunk(block, row % 64, chunk % 8));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    w[i] |= bad ? kGemmNan : 0;
  }
}

/**
 * Rows of T with a bias, and where `act` is wanted an activation of pairs of columns.
 *
 *   z = sums + bias       rounded to T; stored where there is memory for it
 *   y = act(gate, up)     of the rounded z; halves: gate is a tile's first half of columns, up its
 *                         second; else gate and up are neighbours
 *
 * A tile's columns are two runs: they follow each other, but in halves, where the second run lies
 * `half` columns behind the first.
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

  /** Where the first run's columns, or all, end. */
  __device__ __forceinline__ int end() const
  {
    return half ? half : n;
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

  template <typename Form>
  __device__ __forceinline__ void store_z(const gemm_shared &s, const gemm_place &p, int rows,
                                          bool bad, int thread) const
  {
    constexpr int kChunks = Form::kN / 8;
    for (int i = thread; i < rows * kChunks; i += kGemmFinishers) {
      const int row = i / kChunks, chunk = i % kChunks, column = column_of(p, chunk);
      uint32_t w[4];
      gemm_rounded<Form>(w, s, row, chunk, bad);
      if (column < n) {
        store_words(z + (int64_t)(p.row + row) * z_step + column, w);
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
                                          bool bad, int thread) const
  {
    constexpr int kChunks = Form::kN / 16;
    const int first = first_column(p.column_tile) / (half ? 1 : 2);
    for (int i = thread; i < rows * kChunks; i += kGemmFinishers) {
      const int row = i / kChunks, chunk = i % kChunks, column = first + 8 * chunk;
      uint32_t a[4], b[4], w[4];
      gemm_rounded<Form>(a, s, row, half ? chunk : 2 * chunk, bad);
      gemm_rounded<Form>(b, s, row, half ? chunk + kChunks : 2 * chunk + 1, bad);
      if (column < n / 2) {
        activate(w, a, b);
        store_words(y + (int64_t)(p.row + row) * y_step + column, w);
      }
    }
  }

  template <typename Form>
  __device__ __forceinline__ void finish(const gemm_shared &s, const gemm_place &p, int, bool bad,
                                         int thread) const
  {
    const int rows = p.rows < kGemmTileM ? p.rows : kGemmTileM;
    if (z) {
      store_z<Form>(s, p, rows, bad, thread);
    }
    if (y) {
      store_y<Form>(s, p, rows, bad, thread);
    }
  }

  /** Rows of no group: z is 0, and so is the activation of 0. */
  __device__ __forceinline__ void fill(const gemm_place &p, bool bad, int thread) const
  {
    const int rows = p.rows < kGemmTileM ? p.rows : kGemmTileM, chunks = run / 4;
    const uint32_t v = bad ? kGemmNan : 0, w[4] = {v, v, v, v};
    const int first = first_column(p.column_tile) / (half ? 1 : 2);
    for (int i = thread; i < rows * chunks; i += kGemmFinishers) {
      const int row = i / chunks, chunk = i % chunks, column = column_of(p, chunk);
      if (z && column < n) {
        store_words(z + (int64_t)(p.row + row) * z_step + column, w);
      }
      const int y_column = first + 8 * chunk;
      if (y && chunk < chunks / 2 && y_column < n / 2) {
        store_words(y + (int64_t)(p.row + row) * y_step + y_column, w);
      }
    }
  }
};

/** C = or += the sums, a matrix for each group, of T or f32. Where they are rounded to T and nothing
 * is added, tiles are handed over rounded; else as f32, in two pieces. */
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

  template <typename Form>
  __device__ __forceinline__ void store_rounded(const gemm_shared &s, const gemm_place &p, int rows,
                                                bool bad, int thread) const
  {
    constexpr int kChunks = Form::kN / 8;
    T *to = static_cast<T *>(c) + p.group * group_step + p.row * row_step;
    for (int i = thread; i < rows * kChunks; i += kGemmFinishers) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int column = first_column(p.column_tile) + 8 * chunk;
      uint32_t w[4];
      gemm_rounded<Form>(w, s, row, chunk, bad);
      if (column < n) {
        store_words(to + row * row_step + column, w);
      }
    }
  }

  /** 4 elements of a result: += or =. */
  __device__ __forceinline__ void add_sums(int64_t at, const float (&sums)[4], bool bad) const
  {
    float v[4];
    if (is_f32) {
      float *to = static_cast<float *>(c) + at;
      if (adds) {
        load(v, to);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        v[i] = bad ? __uint_as_float(kGemmNan) : adds ? v[i] + sums[i] : sums[i];
      }
      store(to, v);
      return;
    }
    T *to = static_cast<T *>(c) + at; /* rounded tiles come another way unless they are added */
    load(v, to);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      v[i] = bad ? __uint_as_float(kGemmNan) : v[i] + sums[i];
    }
    store(to, v);
  }

  template <typename Form>
  __device__ __forceinline__ void store_sums(const gemm_shared &s, const gemm_place &p, int rows,
                                             int piece, bool bad, int thread) const
  {
    constexpr int kChunks = Form::kN / 8;
    const int64_t start = p.group * group_step + p.row * row_step;
    const int first = first_column(p.column_tile) + piece * run;
#pragma unroll 4
    for (int i = thread; i < rows * kChunks; i += kGemmFinishers) {
      const int row = i / kChunks, chunk = i % kChunks, column = first + 4 * chunk;
      uint32_t w[4];
      load_shared(w, gemm_sums_at<Form>(s, row, chunk));
      if (column < n) {
        const float v[4] = {__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]),
                            __uint_as_float(w[3])};
        add_sums(start + row * row_step + column, v, bad);
      }
    }
  }

  template <typename Form>
  __device__ __forceinline__ void finish(const gemm_shared &s, const gemm_place &p, int piece,
                                         bool bad, int thread) const
  {
    const int rows = p.rows < kGemmTileM ? p.rows : kGemmTileM;
    if (takes_sums()) {
      store_sums<Form>(s, p, rows, piece, bad, thread);
    } else {
      store_rounded<Form>(s, p, rows, bad, thread);
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
