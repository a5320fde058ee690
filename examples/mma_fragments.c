/* One tensor core instruction, mma.m16n8k16: D = A B, A is 16 x 16, B 16 x 8, D 16 x 8. The 32
 * lanes of a warp hold the matrices together: each has 8 elements of A, 4 of B and 4 of D, its
 * fragments. This program draws who holds what, and multiplies through the fragments as the
 * instruction does. */
#include <stdio.h>

enum { kM = 16, kN = 8, kK = 16, kLanes = 32 };

typedef struct element {
  int row, col;
} element;

/* Element i of a lane's fragment; group and place count lanes by fours. */
static element of_a(int lane, int i)
{
  const int group = lane / 4, place = lane % 4;
  return (element){group + (i / 2 % 2) * 8, place * 2 + i % 2 + i / 4 * 8};
}

static element of_b(int lane, int i)
{
  return (element){lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4};
}

static element of_d(int lane, int i)
{
  return (element){lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

static void draw(const char *name, int rows, int cols, int count, element (*of)(int, int))
{
  int holder[kM][kK];
  for (int lane = 0; lane < kLanes; lane++) {
    for (int i = 0; i < count; i++) {
      const element e = of(lane, i);
      holder[e.row][e.col] = lane;
    }
  }
  printf("lanes that hold %s\n", name);
  for (int r = 0; r < rows; r++) {
    for (int c = 0; c < cols; c++) {
      printf("%s%2d", c ? " " : "  ", holder[r][c]);
    }
    printf("\n");
  }
}

int main(void)
{
  int a[kM][kK], b[kK][kN], d[kM][kN], fragment_a[kLanes][8], fragment_b[kLanes][4];
  for (int i = 0; i < kM * kK; i++) {
    a[i / kK][i % kK] = i * 7 % 11 - 5;
  }
  for (int i = 0; i < kK * kN; i++) {
    b[i / kN][i % kN] = i * 5 % 13 - 6;
  }
  draw("D (16 x 8), two neighbours each, and two 8 rows below", kM, kN, 4, of_d);
  draw("B (16 x 8), a column of each group of four", kK, kN, 4, of_b);
  for (int lane = 0; lane < kLanes; lane++) { /* what ldmatrix does */
    for (int i = 0; i < 8; i++) {
      fragment_a[lane][i] = a[of_a(lane, i).row][of_a(lane, i).col];
    }
    for (int i = 0; i < 4; i++) {
      fragment_b[lane][i] = b[of_b(lane, i).row][of_b(lane, i).col];
    }
  }
  for (int lane = 0; lane < kLanes; lane++) { /* what mma does: it sees every lane's fragments */
    for (int i = 0; i < 4; i++) {
      const element e = of_d(lane, i);
      int sum = 0;
      for (int other = 0; other < kLanes * 8; other++) {
        const element x = of_a(other / 8, other % 8);
        for (int j = 0; x.row == e.row && j < kLanes * 4; j++) {
          const element y = of_b(j / 4, j % 4);
          sum += y.col == e.col && y.row == x.col
                     ? fragment_a[other / 8][other % 8] * fragment_b[j / 4][j % 4]
                     : 0;
        }
      }
      d[e.row][e.col] = sum;
    }
  }
  int wrong = 0;
  for (int r = 0; r < kM; r++) {
    for (int c = 0; c < kN; c++) {
      int sum = 0;
      for (int k = 0; k < kK; k++) {
        sum += a[r][k] * b[k][c];
      }
      wrong += sum != d[r][c];
    }
  }
  printf("D[0,0] = %d, D[15,7] = %d; %d of %d elements differ from a plain product\n", d[0][0],
         d[15][7], wrong, kM * kN);
  return 0;
}

/* Prints:
 * lanes that hold D (16 x 8), two neighbours each, and two 8 rows below
 *    0  0  1  1  2  2  3  3
 *    4  4  5  5  6  6  7  7
 *    8  8  9  9 10 10 11 11
 *   12 12 13 13 14 14 15 15
 *   16 16 17 17 18 18 19 19
 *   20 20 21 21 22 22 23 23
 *   24 24 25 25 26 26 27 27
 *   28 28 29 29 30 30 31 31
 *    0  0  1  1  2  2  3  3
 *    4  4  5  5  6  6  7  7
 *    8  8  9  9 10 10 11 11
 *   12 12 13 13 14 14 15 15
 *   16 16 17 17 18 18 19 19
 *   20 20 21 21 22 22 23 23
 *   24 24 25 25 26 26 27 27
 *   28 28 29 29 30 30 31 31
 * lanes that hold B (16 x 8), a column of each group of four
 *    0  4  8 12 16 20 24 28
 *    0  4  8 12 16 20 24 28
 *    1  5  9 13 17 21 25 29
 *    1  5  9 13 17 21 25 29
 *    2  6 10 14 18 22 26 30
 *    2  6 10 14 18 22 26 30
 *    3  7 11 15 19 23 27 31
 *    3  7 11 15 19 23 27 31
 *    0  4  8 12 16 20 24 28
 *    0  4  8 12 16 20 24 28
 *    1  5  9 13 17 21 25 29
 *    1  5  9 13 17 21 25 29
 *    2  6 10 14 18 22 26 30
 *    2  6 10 14 18 22 26 30
 *    3  7 11 15 19 23 27 31
 *    3  7 11 15 19 23 27 31
 * D[0,0] = -19, D[15,7] = -40; 0 of 128 elements differ from a plain product
 */
