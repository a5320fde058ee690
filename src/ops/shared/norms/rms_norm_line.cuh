/** Parameters of the fixed-width RMSNorm kernels, whose rows are contiguous. */
#ifndef TGI_OPS_RMS_NORM_LINE_CUH
#define TGI_OPS_RMS_NORM_LINE_CUH

#include "ops/shared/norms/rms_norm_vectors.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** 48 bytes. Kernel parameters are in constant memory that is not cached when a launch begins; this
 * struct fits the first cache line of it. */
template <norm_kind kKind> struct norm_line {
  const void *x, *weight;
  void *y;
  float *rstd;
  int rows;
  float eps, offset;
  bool rounds, has_rstd;
};

template <> struct norm_line<kNormGated> {
  const void *x, *weight;
  void *y;
  const void *other;
  int rows;
  float eps;
  bool rounds, has_rstd;
  float *rstd; /* after the first 48 bytes */
};

template <norm_kind kKind> norm_line<kKind> line_of(const norm_forward &f)
{
  norm_line<kKind> l = {};
  l.x = f.x, l.weight = f.weight, l.y = f.y, l.rstd = f.rstd;
  if constexpr (kKind == kNormGated) {
    l.other = f.other;
  } else {
    l.offset = f.offset;
  }
  l.rows = (int)f.rows, l.eps = f.eps;
  l.rounds = f.rounds, l.has_rstd = f.rstd != nullptr;
  return l;
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
