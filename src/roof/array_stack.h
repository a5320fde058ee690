/**
 * Memory for timing, taken and given back in the order of a stack.
 *
 * One region on huge pages (where the system grants them) serves all cases of a run: memory that
 * was touched once stays with the process, so that later cases do not wait for the system to clear
 * it. Ops and their roofs use the same region.
 */
#ifndef TGI_ROOF_ARRAY_STACK_H
#define TGI_ROOF_ARRAY_STACK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct array_stack {
  char *base;
  size_t size, used;
  int count; /* arrays taken */
} array_stack;

/** Reserves address space for the machine's memory; false if the system refuses. */
bool array_stack_open(array_stack *s);
void array_stack_close(array_stack *s);

/** An array at an address of 64 bytes; NULL if it would take more than the machine's free memory.
 * Arrays taken one after the other start at different cache sets. */
void *array_stack_take(array_stack *s, size_t bytes);

/** Gives back whatever was taken since `mark`, an earlier value of *s. */
void array_stack_release(array_stack *s, const array_stack *mark);

#endif
