/**
 * Operands of gemm_sm80.cuh: how a block brings tiles of matrices, 16-bit or f32 (T = tf32), into
 * shared memory.
 *
 * A tile is stored as its matrix is: rows are lines along k, or steps across k. The unit is a chunk
 * of 16 bytes. Chunks of a row change places by the row's number, so that the eight rows of a chunk
 * that ldmatrix reads lie in eight different groups of banks. It turns no 32-bit elements: rows of
 * f32 across k are read word by word, and lie 32 bytes apart, so that eight words of each of four
 * rows lie in 32 banks.
 *
 * Lines that do not exist are any elements that do: their sums are not stored. Steps that do not
 * exist are zeros. So whole stages of whole chunks are copied without a look at the edges: beside
 * the products, address arithmetic is what costs most.
 */
#ifndef TGI_CUDA_GEMM_OPERAND_SM80_CUH
#define TGI_CUDA_GEMM_OPERAND_SM80_CUH

#include "cuda/mma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kMmaChunk = 8;    /* neighbours of a result's row */
constexpr int64_t kBadRow = -1; /* in place of a row's number */

/** Elements of a chunk of an operand. */
template <typename T> constexpr int kMmaElements = 8 / kHalves<T>;

/** A matrix for each group. */
struct mma_operand {
  const char *data;
  int64_t group_bytes;
  uint32_t row_bytes;
  bool vectors; /* rows begin at multiples of 16 bytes */
  bool whole;   /* across k: rows are whole chunks */
};

/** `count` elements of a chunk, zeros behind them, from memory to shared memory, where no chunk is
 * aligned: 16-bit ones at once. */
template <typename T>
__device__ __forceinline__ void copy_elements(uint32_t to, const char *from, int count)
{
  if constexpr (kIsTf32<T>) {
#pragma unroll
    for (int i = 0; i < kMmaElements<T>; i++) {
      copy_word(to + 4 * i, i < count ? from + 4 * i : from, i < count);
    }
  } else {
    uint32_t w[4] = {};
#pragma unroll
    for (int i = 0; i < kMmaElements<T>; i++) {
      if (i < count) {
        w[i / 2] |= (uint32_t)__ldg(reinterpret_cast<const unsigned short *>(from) + i)
                    << 16 * (i % 2);
      }
    }
    store_shared(to, w[0], w[1], w[2], w[3]);
  }
}

template <int kMost = kMmaChunk> __device__ __forceinline__ int clamp_chunk(int64_t left)
{
  return left < 0 ? 0 : left < kMost ? (int)left : kMost;
}

/** Tiles of kLines lines and kSteps along k of an operand; kTurned: it is stored across k; kListed:
 * a list says which rows of the matrix a tile's rows are, else they follow each other. */
template <typename T, int kLines, int kSteps, int kThreads, bool kTurned, bool kListed>
struct mma_tile {
  static constexpr int kElements = kMmaElements<T>, kElement = 16 / kElements; /* bytes of one */
  static constexpr bool kWords = kTurned && kIsTf32<T>; /* read word by word */
  static constexpr int kRows = kTurned ? kSteps : kLines;
  static constexpr int kChunks = (kTurned ? kLines : kSteps) / kElements; /* of a row */
  static constexpr int kPitch = 16 * kChunks + (kWords ? 32 : 0);
  static constexpr int kBytes = kRows * kPitch;
  static constexpr int kDown = kThreads / kChunks; /* rows that are copied at once */
  static constexpr int kCopies = kRows / kDown;    /* of a thread */
  static_assert(kThreads % kChunks == 0 && kRows % kDown == 0, "a thread copies one column");

  const char *from; /* the group's matrix, at the thread's chunk */
  uint32_t row_bytes;
  int count; /* across k: elements of the chunk that exist; along k: lines, if they follow */
  bool fast, vectors;

  __device__ __forceinline__ static int turn_of(int row)
  {
    return kWords ? 0 : kChunks >= 8 ? row & 7 : row / (8 / kChunks) & (kChunks - 1);
  }

  __device__ __forceinline__ static uint32_t place_of(int row, int chunk)
  {
    return row * kPitch + ((chunk ^ turn_of(row)) << 4);
  }

  /** The thread's chunk of each row that it copies, and the first of these rows. */
  __device__ __forceinline__ static int chunk()
  {
    return (int)threadIdx.x % kChunks;
  }

  __device__ __forceinline__ static int row()
  {
    return (int)threadIdx.x / kChunks;
  }

  /** `first` is the row of step 0, or of the first line (0 where they are listed), of which `exist`
   * do. Across k: `column` is that of the thread's chunk, of which `exist` elements do. */
  __device__ __forceinline__ void begin(const mma_operand &o, int64_t group, int64_t first,
                                        int64_t column, int exist)
  {
    from = o.data + group * o.group_bytes + first * (int64_t)o.row_bytes;
    from += kTurned ? kElement * (exist > 0 ? column : 0) : 16 * chunk();
    row_bytes = o.row_bytes;
    count = exist;
    vectors = o.vectors;
    fast = o.vectors && (!kTurned || o.whole);
  }

  /** Whether copy_whole may copy a stage that begins with step k0 of `steps`. */
  __device__ __forceinline__ bool is_whole(int k0, int steps) const
  {
    return fast && k0 + kSteps <= steps;
  }

  /** Where row r of the tile is, from `from`, of a stage that begins with step k0. `list`: which
   * rows are the lines, or the stage's steps. */
  __device__ __forceinline__ uint64_t row_offset(const uint32_t *list, int k0, int r) const
  {
    const int line = r < count ? r : count - 1;
    return (uint64_t)row_bytes * (kListed ? list[r] : (uint32_t)(kTurned ? k0 + r : line));
  }

  /** Copies part kPart of kParts of a whole stage that begins with step k0. */
  template <int kPart, int kParts>
  __device__ __forceinline__ void copy_whole(uint32_t to, int k0, const uint32_t *list) const
  {
    constexpr int kBegin = kPart * kCopies / kParts, kEnd = (kPart + 1) * kCopies / kParts;
    const uint32_t place = to + place_of(row(), chunk());
    const char *base = from;
    if constexpr (!kTurned) {
      base += kElement * (uint32_t)k0;
    } else if constexpr (!kListed) {
      base += (uint64_t)row_bytes * (uint32_t)(k0 + row());
    }
#pragma unroll
    for (int i = kBegin; i < kEnd; i++) {
      const bool same_turn = kWords || kDown % 8 == 0;
      const uint32_t at =
          same_turn ? place + i * kDown * kPitch : to + place_of(row() + i * kDown, chunk());
      if constexpr (kTurned && !kListed) {
        copy_vector(at, base + (uint64_t)row_bytes * (uint32_t)(i * kDown));
      } else {
        copy_vector(at, base + row_offset(list, k0, row() + i * kDown));
      }
    }
  }

  /** The same of any stage. */
  template <int kPart, int kParts>
  __device__ __forceinline__ void copy_any(uint32_t to, int k0, int steps,
                                           const uint32_t *list) const
  {
    constexpr int kBegin = kPart * kCopies / kParts, kEnd = (kPart + 1) * kCopies / kParts;
#pragma unroll 1
    for (int i = kBegin; i < kEnd; i++) {
      copy_edge(to, k0, steps, list, row() + i * kDown);
    }
  }

  __device__ __forceinline__ void copy_edge(uint32_t to, int k0, int steps, const uint32_t *list,
                                            int r) const
  {
    const int k = kTurned ? k0 + r : k0 + kElements * chunk();
    const int exist = !kTurned ? clamp_chunk<kElements>((int64_t)steps - k) : k < steps ? count : 0;
    const char *source = from; /* which may be read as well as any address */
    if (exist > 0) {
      source += row_offset(list, k0, r) + (kTurned ? 0 : kElement * (int64_t)k0);
    }
    const uint32_t place = to + place_of(r, chunk());
    if (vectors) {
      copy_part(place, source, kElement * exist);
    } else {
      copy_elements<T>(place, source, exist);
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
