/**
 * Packed quantised weights (core/values/packed_weight.h) where they lie on the device: at any
 * address, and with a header that no host code can look at.
 */
#ifndef TGI_CUDA_PACKED_WEIGHT_CUH
#define TGI_CUDA_PACKED_WEIGHT_CUH

#include "cuda/fault.cuh"

#ifndef _Static_assert
#define _Static_assert static_assert
#endif
extern "C" {
#include "core/values/packed_weight.h"
}

inline namespace TGI_CUDA_ENTRY
{

/* A weight and what the call says that it is. By value to kernels. */
struct packed_weight {
  const uint8_t *data;
  int64_t bytes, out, in;
  int64_t magic, version;
  fault_site site;
  bool aligned; /* to 4 bytes, as all that follows the start is then */
};

inline packed_weight packed_weight_of(const tg_tensor *weight, const char *magic, int64_t version,
                                      int64_t out, int64_t in, fault_site site)
{
  packed_weight w = {};
  w.data = static_cast<const uint8_t *>(weight->data);
  w.bytes = weight->shape[0];
  w.out = out;
  w.in = in;
  memcpy(&w.magic, magic, sizeof w.magic);
  w.version = version;
  w.site = site;
  w.aligned = (uintptr_t)weight->data % 4 == 0;
  return w;
}

__device__ __forceinline__ uint32_t packed_word(const uint8_t *at, bool aligned)
{
  return aligned ? *reinterpret_cast<const uint32_t *>(at)
                 : at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

__device__ __forceinline__ float packed_float(const uint8_t *at, bool aligned)
{
  return __uint_as_float(packed_word(at, aligned));
}

__device__ __forceinline__ int64_t packed_long(const uint8_t *at, bool aligned)
{
  return (int64_t)((uint64_t)packed_word(at + 4, aligned) << 32 | packed_word(at, aligned));
}

/** True if the header, of which `h` is a copy, says what the call says. One thread of the grid
 * records what does not fit. */
__device__ inline bool packed_header_fits(const packed_weight &w, const uint8_t *h, bool recorder)
{
  const int64_t magic = packed_long(h, w.aligned);
  const int64_t out = packed_long(h + offsetof(tgi_packed_header, out), w.aligned);
  const int64_t in = packed_long(h + offsetof(tgi_packed_header, in), w.aligned);
  const int64_t version = packed_long(h + offsetof(tgi_packed_header, version), w.aligned);
  const bool fits = magic == w.magic && version == w.version && out == w.out && in == w.in;
  if (!fits && recorder) {
    if (magic != w.magic) {
      record_fault(w.site, 0, magic, w.magic, w.magic);
    } else if (version != w.version) {
      record_fault(w.site, 0, version, w.version, w.version);
    } else if (out != w.out) {
      record_fault(w.site, 0, out, w.out, w.out);
    } else {
      record_fault(w.site, 0, in, w.in, w.in);
    }
  }
  return fits;
}

/** The same of the header where it lies. */
__device__ inline bool packed_header_fits(const packed_weight &w, bool recorder)
{
  return packed_header_fits(w, w.data, recorder);
}

} // namespace TGI_CUDA_ENTRY

#endif
