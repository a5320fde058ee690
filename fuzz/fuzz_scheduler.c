/* Any bytes: requests that come, stop, and are cancelled. The scheduler never gives a block twice,
 * computes every token once behind what is before it, and frees everything. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
  if (!condition) {
    abort();
  }
}

#define SCHEDULER_REQUIRE(condition) require(condition)
#include "generation/scheduler_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  scheduler_run run;
  scheduler_run_bytes(&run, data, size < 1024 ? size : 1024);
  return 0;
}
