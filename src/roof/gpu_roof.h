/** The roofs of a GPU (memory bandwidth and product throughput), measured through the public API.
 */
#ifndef TGI_ROOF_GPU_ROOF_H
#define TGI_ROOF_GPU_ROOF_H

#include "tegula/context.h"
#include "tegula/tensor.h"

typedef struct tgi_gpu_roof {
  double bytes_per_s;   /* read and written by copies within the GPU's memory */
  double product_flops; /* of products of random 8192 x 8192 matrices */
} tgi_gpu_roof;

/** Measures medians of a few runs, in about a second. dtype is that of the matrices: f32, f16 or
 * bf16. Errors: those of tg_context_create, NO_MEMORY, DEVICE. */
tg_status tgi_gpu_roof_measure(int32_t index, tg_dtype dtype, tgi_gpu_roof *out, tg_error *error);

/** The first of them alone, in some 50 ms and a GiB of the GPU's memory. Errors: the same. */
tg_status tgi_gpu_roof_measure_copy(int32_t index, double *bytes_per_s, tg_error *error);

#endif
