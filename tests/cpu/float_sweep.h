/**
 * Every f32 by its bits, or one in kStep of them, in chunks that threads share: for tests of words
 * of one argument. The argument --exhaustive asks for all.
 */
#ifndef TGI_TESTS_FLOAT_SWEEP_H
#define TGI_TESTS_FLOAT_SWEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kBatch = 4096, kStep = 1021, kChunks = 256 };

static uint64_t sweep_step = kStep;

/** Chunk c holds the multiples of the step among the bit patterns [c, c + 1) * 2^24: its first. */
static inline uint64_t sweep_first(int64_t c)
{
  const uint64_t begin = (uint64_t)c << 24;
  return begin + (sweep_step - begin % sweep_step) % sweep_step;
}

/** False, with the usage on stderr, if they are none of this program's. */
static inline bool sweep_arguments(int argc, char **argv)
{
  if (argc > 2 || (argc == 2 && strcmp(argv[1], "--exhaustive") != 0)) {
    fprintf(stderr, "usage: %s [--exhaustive]\n", argv[0]);
    return false;
  }
  sweep_step = argc == 2 ? 1 : kStep;
  return true;
}

#endif
