/* A warp's all-reduce by shuffles: 32 lanes add up a number each, and all of them get the sum, in 5
 * steps instead of 31. In step s a lane reads the value of the lane whose number differs in bit s
 * (__shfl_xor_sync). Both add the same two numbers, and a + b = b + a: all lanes end with the same
 * bits, in whatever order a sum of floats would otherwise depend on. */
#include <stdio.h>
#include <string.h>

enum { kLanes = 32, kShown = 8 };

int main(void)
{
  float value[kLanes], other[kLanes], in_order = 0;
  for (int lane = 0; lane < kLanes; lane++) {
    value[lane] = 1 / (float)(lane + 1);
    in_order += value[lane];
  }
  for (int step = 1; step < kLanes; step *= 2) {
    for (int lane = 0; lane < kLanes; lane++) { /* all lanes at once: the shuffle */
      other[lane] = value[lane ^ step];
    }
    for (int lane = 0; lane < kLanes; lane++) {
      value[lane] += other[lane];
    }
    printf("xor %2d:", step);
    for (int lane = 0; lane < kShown; lane++) {
      printf(" %.4f", (double)value[lane]);
    }
    printf(" ...\n");
  }
  int same = 0;
  for (int lane = 0; lane < kLanes; lane++) {
    same += memcmp(&value[lane], &value[0], sizeof value[0]) == 0;
  }
  printf("%d lanes have the same bits, %.4f; one after another: %.4f\n", same, (double)value[0],
         (double)in_order);
  return 0;
}

/* Prints:
 * xor  1: 1.5000 1.5000 0.5833 0.5833 0.3667 0.3667 0.2679 0.2679 ...
 * xor  2: 2.0833 2.0833 2.0833 2.0833 0.6345 0.6345 0.6345 0.6345 ...
 * xor  4: 2.7179 2.7179 2.7179 2.7179 2.7179 2.7179 2.7179 2.7179 ...
 * xor  8: 3.3807 3.3807 3.3807 3.3807 3.3807 3.3807 3.3807 3.3807 ...
 * xor 16: 4.0585 4.0585 4.0585 4.0585 4.0585 4.0585 4.0585 4.0585 ...
 * 32 lanes have the same bits, 4.0585; one after another: 4.0585
 */
