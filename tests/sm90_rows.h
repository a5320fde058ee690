/** The partial entry sm90, in builds with and without CUDA: tests/CMakeLists.txt reads the names of
 * its kernels from the sources. */
#ifndef TGI_TESTS_SM90_ROWS_H
#define TGI_TESTS_SM90_ROWS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/** True if sm90 has a kernel of its own for a row of the op table. */
static inline bool is_sm90_row(const char *row)
{
  char name[64];
  snprintf(name, sizeof name, ",%s,", row);
  return strstr(TGI_SM90_ROWS, name) != NULL;
}

#endif
