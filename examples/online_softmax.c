/* Online softmax in steps: a row is read once, in pieces, with a running maximum and a running sum.
 * When the maximum grows, what was summed before is scaled down; the result is that of two passes.
 * Flash attention does the same with the rows of v beside the sum. */
#include <math.h>
#include <stdio.h>

enum { kPieces = 3, kPiece = 4, kAll = kPieces * kPiece };

int main(void)
{
  static const double x[kAll] = {1, 3, 2, 0, 5, 4, 1, 2, 3, 7, 6, 5};
  double most = -INFINITY, sum = 0;
  for (int p = 0; p < kPieces; p++) {
    double largest = most;
    for (int i = 0; i < kPiece; i++) {
      largest = fmax(largest, x[p * kPiece + i]);
    }
    const double scale = exp(most - largest); /* 0 at first */
    sum *= scale;
    for (int i = 0; i < kPiece; i++) {
      sum += exp(x[p * kPiece + i] - largest);
    }
    printf("piece %d: maximum %g, the old sum times %.4f, sum %.4f\n", p, largest, scale, sum);
    most = largest;
  }
  double whole = 0, worst = 0, total = 0;
  for (int i = 0; i < kAll; i++) {
    whole += exp(x[i] - 7);
  }
  for (int i = 0; i < kAll; i++) {
    const double online = exp(x[i] - most) / sum;
    total += online;
    worst = fmax(worst, fabs(online - exp(x[i] - 7) / whole));
  }
  printf("the largest has %.4f, all together %.4f\n", exp(7 - most) / sum, total);
  printf("%s the softmax of two passes\n", worst < 1e-15 ? "equal to" : "differs from");
  return 0;
}

/* Prints:
 * piece 0: maximum 3, the old sum times 0.0000, sum 1.5530
 * piece 1: maximum 5, the old sum times 0.1353, sum 1.6462
 * piece 2: maximum 7, the old sum times 0.1353, sum 1.7443
 * the largest has 0.5733, all together 1.0000
 * equal to the softmax of two passes
 */
