/**
 * Tiles of 16-bit elements in shared memory. All threads of a block copy a tile with cp.async;
 * warps load it as operands of mma instructions (mma.cuh). From compute capability 8.0 on. An f32
 * element counts as two 16-bit words (tf32.cuh), so the layout is the same. Products round f32
 * operands to TF32 as they load them, except operand A of a tile that is used often: it is rounded
 * once in place (round_tile).
 *
 * Rows are contiguous. The 16-byte chunks of a row form groups of 8, or of 4 if their number is no
 * multiple of 8. The chunks of a group are swizzled: chunk c of row r lies at c ^ turn(r), so the
 * eight rows of a matrix fragment are free of bank conflicts.
 */
#ifndef TGI_CUDA_ROW_TILE_CUH
#define TGI_CUDA_ROW_TILE_CUH

#include "cuda/mma.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** kCols: 16-bit words per row, a multiple of 32. */
template <int kCols> struct row_tile {
  static constexpr int kChunks = kCols / 8, kPitch = 2 * kCols;
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : 4;
  static_assert(kChunks % kGroup == 0, "rows are whole groups of chunks");

  static __device__ __forceinline__ uint32_t at(int row, int chunk)
  {
    const int turn = kGroup == 8 ? row % 8 : row / 2 % 4;
    return (uint32_t)(row * kPitch + ((chunk ^ turn) << 4));
  }

  /** Address of the chunk 2 i after the one at `place`, which is chunk 0 or 1 of a row. */
  static __device__ __forceinline__ uint32_t ahead(uint32_t place, int i)
  {
    return (place ^ (uint32_t)(2 * i % kGroup << 4)) + (uint32_t)(2 * i / kGroup * kGroup << 4);
  }

  /** Address of the same chunk `rows` rows below `place`. rows is a multiple of a power of two that
   * exceeds the place's row % 16. */
  static __device__ __forceinline__ uint32_t down(uint32_t place, int rows)
  {
    const int turn = kGroup == 8 ? rows % 8 : rows / 2 % 4;
    return (place ^ (uint32_t)(turn << 4)) + (uint32_t)(rows * kPitch);
  }

  /** A lane's address for load_matrices of 16 rows by 16 columns of operand A. Transposed: of a 16
   * by 16 block of B whose depth (k) runs along the tile's rows. */
  static __device__ __forceinline__ uint32_t square(uint32_t tile)
  {
    const int lane = threadIdx.x % 32;
    return tile + at(lane % 16, lane / 16);
  }

  /** A lane's address for add_rows_small: operand B, with its depth along the tile's rows. */
  template <typename T> static __device__ __forceinline__ uint32_t depth(uint32_t tile)
  {
    if constexpr (kIsTf32<T>) {
      const int lane = threadIdx.x % 32;
      return tile + at(lane % 4 * 2, lane / 4);
    } else {
      return square(tile);
    }
  }

  /** A lane's address for 16 columns of B, each a row of the tile, with depth 16: m[0] and m[1]
   * hold the first eight columns. */
  static __device__ __forceinline__ uint32_t columns(uint32_t tile)
  {
    const int lane = threadIdx.x % 32;
    return tile + at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
};

/** How kThreads threads divide the chunks of a tile: a step covers whole rows. */
template <int kCols, int kRows, int kThreads> struct row_share {
  static constexpr int kChunks = row_tile<kCols>::kChunks;
  static constexpr int kWide = kChunks % 16 == 0 ? 16 : row_tile<kCols>::kGroup;
  static constexpr int kStep = kThreads / kWide;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0, "threads share out whole rows");
};

/** Copies rows first .. first + kRows - 1 of kCols words, `step` words apart. All rows exist. */
template <int kCols, int kRows, int kThreads>
__device__ __forceinline__ void copy_whole_rows(uint32_t to, const uint16_t *from, int64_t step,
                                                int first)
{
  using tile = row_tile<kCols>;
  using share = row_share<kCols, kRows, kThreads>;
  const int column = threadIdx.x % share::kWide, row = threadIdx.x / share::kWide;
  const uint32_t place = to + tile::at(row, column);
  from += (first + row) * step + column * 8;
  asm volatile("" : "+l"(step)); /* keeps its multiples out of registers */
#pragma unroll
  for (int p = 0; p < kRows / share::kStep; p++) {
#pragma unroll
    for (int g = 0; g < tile::kChunks / share::kWide; g++) {
      copy_chunk(place + (uint32_t)(p * share::kStep * tile::kPitch + g * share::kWide * 16),
                 from + p * share::kStep * step + g * share::kWide * 8, true);
    }
  }
}

/**
 * Copies kRows rows of `width` words, `step` words apart, with kThreads threads. Rows outside
 * low .. high - 1 and words from `width` on become zeros. `legal` is a valid address of the tensor.
 */
template <int kCols, int kRows, int kThreads>
__device__ __forceinline__ void copy_rows(uint32_t to, const uint16_t *from, int64_t step, int low,
                                          int high, int width, const uint16_t *legal)
{
  using tile = row_tile<kCols>;
  using share = row_share<kCols, kRows, kThreads>;
  const int column = threadIdx.x % share::kWide, row = threadIdx.x / share::kWide;
  const uint32_t place = to + tile::at(row, column);
  from += row * step + column * 8;
#pragma unroll
  for (int p = 0; p < kRows / share::kStep; p++) {
    const bool here = row + p * share::kStep >= low && row + p * share::kStep < high;
#pragma unroll
    for (int g = 0; g < tile::kChunks / share::kWide; g++) {
      const bool exists = here && (column + g * share::kWide) * 8 < width;
      copy_chunk(place + (uint32_t)(p * share::kStep * tile::kPitch + g * share::kWide * 16),
                 exists ? from + p * share::kStep * step + g * share::kWide * 8 : legal, exists);
    }
  }
}

/** Rounds a tile of kWords words in place, with kThreads threads, before its use as operand A. The
 * caller places a barrier between the copy and this call, and one between this call and reads. */
template <typename T, int kWords, int kThreads>
__device__ __forceinline__ void round_tile(uint32_t tile)
{
  static_assert(kWords % (8 * kThreads) == 0, "threads share out whole chunks");
  if constexpr (kIsTf32<T>) {
#pragma unroll 4
    for (int i = 0; i < kWords / (8 * kThreads); i++) {
      const uint32_t place = tile + (uint32_t)(i * kThreads + threadIdx.x) * 16;
      uint32_t w[4];
      load_shared(w, place);
      round_words<T>(w);
      store_shared(place, w[0], w[1], w[2], w[3]);
    }
  }
}

/**
 * d = A B, with kM times 16 rows, kN columns and depth kDepth. A is a tile of rows of kDepth
 * elements and `a` is its square() address. B's columns are the rows of such a tile; `b` is its
 * columns() address.
 */
template <typename T, int kM, int kN, int kDepth>
__device__ __forceinline__ void multiply_rows_small(float (&d)[kM][kN / 2], uint32_t a, uint32_t b)
{
  using tile = row_tile<kHalves<T> * kDepth>;
  asm volatile("" : "+r"(a), "+r"(b)); /* keeps addresses of later steps out of registers */
  constexpr int kColumns = kN / 16, kDeep = kHalves<T> * kDepth / 16, kSteps = kDeep * kColumns;
  constexpr int kAhead = kM == 1 ? 2 : 1, kPlaces = kAhead + 1;
  uint32_t x[2][kM][4], y[kPlaces][4]; /* double-buffered: next loads overlap products */
  auto load_x = [&](int i) {
#pragma unroll
    for (int m = 0; m < kM; m++) {
      load_matrices(x[i % 2][m], tile::ahead(a, i) + (uint32_t)(m * 16 * tile::kPitch));
    }
  };
  auto load_y = [&](int step) {
    load_matrices(y[step % kPlaces], tile::ahead(b, step / kColumns) +
                                         (uint32_t)(step % kColumns * 16 * tile::kPitch));
  };
  load_x(0);
#pragma unroll
  for (int step = 0; step < kAhead; step++) {
    load_y(step);
  }
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    const int i = step / kColumns, n = step % kColumns;
    if (step + kAhead < kSteps) {
      load_y(step + kAhead);
    }
    if (n == kColumns / 2 && i + 1 < kDeep) {
      load_x(i + 1);
    }
    uint32_t(&columns)[4] = y[step % kPlaces];
    round_words<T>(columns);
#pragma unroll
    for (int m = 0; m < kM; m++) {
      multiply_small<T>(d[m] + 8 * n, x[i % 2][m], columns[0], columns[1], i > 0);
      multiply_small<T>(d[m] + 8 * n + 4, x[i % 2][m], columns[2], columns[3], i > 0);
    }
  }
}

/** d += A B, with kM times 16 rows, kN columns and depth kDepth. A is a tile of rows of kDepth
 * columns and `a` is its square() address. B's depth runs along the rows of a tile of kCols
 * columns, of which kN are used. `b` is its square() address plus whole groups of chunks. */
template <typename T, int kM, int kN, int kDepth, int kCols>
__device__ __forceinline__ void add_products_small(float (&d)[kM][kN / 2], uint32_t a, uint32_t b)
{
  using rows = row_tile<kDepth>;
  using tile = row_tile<kCols>;
  static_assert(!kIsTf32<T>, "of 16 bits alone");
  static_assert(kN / 8 % tile::kGroup == 0, "columns are whole groups of chunks");
  asm volatile("" : "+r"(a), "+r"(b));
  constexpr int kColumns = kN / 16, kSteps = kDepth / 16 * kColumns;
  uint32_t x[2][kM][4], y[2][4];
  auto load_x = [&](int i) {
#pragma unroll
    for (int m = 0; m < kM; m++) {
      load_matrices(x[i % 2][m], rows::ahead(a, i) + (uint32_t)(m * 16 * rows::kPitch));
    }
  };
  auto load_y = [&](int step) {
    load_matrices_turned(y[step % 2], tile::ahead(b, step % kColumns) +
                                          (uint32_t)(step / kColumns * 16 * tile::kPitch));
  };
  load_x(0);
  load_y(0);
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    const int i = step / kColumns, n = step % kColumns;
    if (step + 1 < kSteps) {
      load_y(step + 1);
    }
    if (n == kColumns / 2 && i + 1 < kDepth / 16) {
      load_x(i + 1);
    }
#pragma unroll
    for (int m = 0; m < kM; m++) {
      multiply_small<T>(d[m] + 8 * n, x[i % 2][m], y[step % 2][0], y[step % 2][1], true);
      multiply_small<T>(d[m] + 8 * n + 4, x[i % 2][m], y[step % 2][2], y[step % 2][3], true);
    }
  }
}

/** add_rows_small for 16-bit elements; `b` is a square() address. */
template <typename T, int kM, int kN, int kDepth>
__device__ __forceinline__ void add_rows_halves(float (&d)[kM][kN / 2],
                                                const uint32_t (&a)[kM][kDepth / 4], uint32_t b)
{
  using tile = row_tile<kN>;
  asm volatile("" : "+r"(b));
  constexpr int kColumns = kN / 16, kSteps = kDepth / 16 * kColumns;
  constexpr int kAhead = kM == 1 ? 2 : 1, kPlaces = kAhead + 1;
  uint32_t y[kPlaces][4];
  auto load_y = [&](int step) {
    load_matrices_turned(y[step % kPlaces], tile::ahead(b, step % kColumns) +
                                                (uint32_t)(step / kColumns * 16 * tile::kPitch));
  };
#pragma unroll
  for (int step = 0; step < kAhead; step++) {
    load_y(step);
  }
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    const int i = step / kColumns, n = step % kColumns;
    if (step + kAhead < kSteps) {
      load_y(step + kAhead);
    }
    const uint32_t(&columns)[4] = y[step % kPlaces];
#pragma unroll
    for (int m = 0; m < kM; m++) {
      const uint32_t x[4] = {a[m][4 * i], a[m][4 * i + 1], a[m][4 * i + 2], a[m][4 * i + 3]};
      multiply_small<T>(d[m] + 8 * n, x, columns[0], columns[1], true);
      multiply_small<T>(d[m] + 8 * n + 4, x, columns[2], columns[3], true);
    }
  }
}

/**
 * add_rows_small for f32. No instruction loads 32-bit matrices transposed. Each lane therefore
 * loads four columns of two rows and uses them in four adjacent products. Of each 32 columns, sum
 * d[4 t + i] then holds column 8 q + 4 (i % 2) + t, so a lane holds eight consecutive columns.
 */
template <int kM, int kN, int kDepth>
__device__ __forceinline__ void add_rows_tf32(float (&d)[kM][kN / 2],
                                              const uint32_t (&a)[kM][kDepth / 2], uint32_t b)
{
  using tile = row_tile<2 * kN>;
  static_assert(tile::kGroup == 8 && kN % 32 == 0, "a lane's chunk and the row below's are twins");
  asm volatile("" : "+r"(b));
  constexpr int kColumns = kN / 32, kSteps = kDepth / 8 * kColumns;
  const uint32_t below = (b ^ 16) + tile::kPitch;
  uint32_t y[2][2][4];
  load_shared(y[0][0], b);
  load_shared(y[0][1], below);
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    const int i = step / kColumns, n = step % kColumns, next = step + 1;
    if (next < kSteps) {
      const uint32_t ahead =
          (uint32_t)(next / kColumns * 8 * tile::kPitch + next % kColumns * 32 * 4);
      load_shared(y[next % 2][0], b + ahead);
      load_shared(y[next % 2][1], below + ahead);
    }
    round_words<tf32>(y[step % 2][0]);
    round_words<tf32>(y[step % 2][1]);
#pragma unroll
    for (int m = 0; m < kM; m++) {
      const uint32_t x[4] = {a[m][4 * i], a[m][4 * i + 1], a[m][4 * i + 2], a[m][4 * i + 3]};
#pragma unroll
      for (int t = 0; t < 4; t++) {
        multiply_small<tf32>(d[m] + 16 * n + 4 * t, x, y[step % 2][0][t], y[step % 2][1][t], true);
      }
    }
  }
}

/**
 * d += A B, with kM times 16 rows, kN columns and depth kDepth. A is in registers. B's depth runs
 * along the rows of a tile of kN columns; `b` is its depth() address.
 */
template <typename T, int kM, int kN, int kDepth>
__device__ __forceinline__ void
add_rows_small(float (&d)[kM][kN / 2], const uint32_t (&a)[kM][kHalves<T> * kDepth / 4], uint32_t b)
{
  if constexpr (kIsTf32<T>) {
    add_rows_tf32<kM, kN, kDepth>(d, a, b);
  } else {
    add_rows_halves<T, kM, kN, kDepth>(d, a, b);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
