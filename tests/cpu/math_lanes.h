/**
 * The words of src/cpu that test_math.c, test_half_lanes.c and test_lanes.c check value by value,
 * compiled once per instruction set (math_lanes.c) like the kernels are, behind one table each.
 */
#ifndef TGI_TESTS_MATH_LANES_H
#define TGI_TESTS_MATH_LANES_H

#include "core/machine/processor.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum math_function {
  MATH_EXP,
  MATH_TANH,
  MATH_GELU_TANH,
  MATH_GELU_TANH_GRAD,
  MATH_GELU_ERF,
  MATH_GELU_ERF_GRAD,
  MATH_SILU,
  MATH_SILU_GRAD,
  MATH_SILU_GRAD_BF16,
  MATH_SILU_BESIDE_GRAD,
  MATH_LOGISTIC,
  MATH_FUNCTIONS
} math_function;

/** n is a multiple of 16. dtype is TG_F16 or TG_BF16. */
typedef struct math_lanes {
  const char *entry;
  void (*map[MATH_FUNCTIONS])(const float *x, float *y, int64_t n);
  void (*load)(int dtype, const uint16_t *x, float *y, int64_t n);
  void (*store)(int dtype, const float *x, uint16_t *y, int64_t n);
  void (*round)(int dtype, const float *x, float *y, int64_t n);
  void (*swap_neighbours)(const float *x, float *y, int64_t n);
  /* Two vectors at a time: n is a multiple of 32. f32 is a dtype, too. */
  void (*load_two)(int dtype, const void *x, float *y, int64_t n);
  void (*store_two)(int dtype, const float *x, void *y, int64_t n, bool stream);
  /* n pairs, any number. */
  void (*load_pairs)(int dtype, const void *x, float *even, float *odd, int64_t n);
  void (*store_pairs)(int dtype, const float *even, const float *odd, void *y, int64_t n,
                      bool stream);
} math_lanes;

extern const math_lanes math_lanes_generic, math_lanes_avx2, math_lanes_avx512;

enum { MATH_ENTRIES = 3 };

/** The tables that this machine can run; returns their number. */
static inline int find_math_lanes(const math_lanes *found[MATH_ENTRIES])
{
  int count = 0;
  found[count++] = &math_lanes_generic;
#ifdef TGI_HAVE_X86
  const tgi_processor processor = tgi_processor_detect();
  if (processor.avx2) {
    found[count++] = &math_lanes_avx2;
  }
  if (processor.avx512) {
    found[count++] = &math_lanes_avx512;
  }
#endif
  return count;
}

#endif
