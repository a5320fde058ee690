/* Tiles in a GPU's shared memory: how rows map to banks, and what a swizzle is for.
 *
 * Shared memory has 32 banks of 4 bytes. A tile of 8 rows of 128 bytes is 8 x 8 units of 16 bytes,
 * and each unit covers 4 banks. ldmatrix reads a column of such units with 8 lanes at once. Plainly
 * stored, the units of a column lie in the same 4 banks: the lanes wait for each other. A swizzle
 * stores unit c of row r at place c XOR r: rows stay where they are, and columns spread. */
#include <stdio.h>
#include <string.h>

enum { kRows = 8, kUnits = 8, kBanks = 32 };

typedef int place(int row, int unit);

static int plain(int row, int unit)
{
  (void)row;
  return unit;
}

static int swizzled(int row, int unit)
{
  return unit ^ (row % kUnits);
}

/* Which unit of its row lies at each place. */
static void draw(const char *name, place *at)
{
  printf("%s\n       bank ", name);
  for (int p = 0; p < kUnits; p++) {
    printf(" %2d", p * 4);
  }
  printf("\n");
  for (int r = 0; r < kRows; r++) {
    int unit[kUnits];
    for (int c = 0; c < kUnits; c++) {
      unit[at(r, c)] = c;
    }
    printf("  row %d unit ", r);
    for (int p = 0; p < kUnits; p++) {
      printf(" %2d", unit[p]);
    }
    printf("\n");
  }
}

/* The most lanes that want the same bank at once: so many times as long does the read take. */
static int conflicts(place *at, int column)
{
  int wanted[kBanks], most = 0;
  memset(wanted, 0, sizeof wanted);
  for (int r = 0; r < kRows; r++) {
    for (int b = 0; b < 4; b++) {
      wanted[at(r, column) * 4 + b]++;
    }
  }
  for (int b = 0; b < kBanks; b++) {
    most = wanted[b] > most ? wanted[b] : most;
  }
  return most;
}

int main(void)
{
  static const struct {
    const char *name;
    place *at;
  } layouts[] = {{"plain", plain}, {"swizzled", swizzled}};
  for (int i = 0; i < 2; i++) {
    int worst = 0;
    draw(layouts[i].name, layouts[i].at);
    for (int c = 0; c < kUnits; c++) {
      const int ways = conflicts(layouts[i].at, c);
      worst = ways > worst ? ways : worst;
    }
    printf("  a column of units: %d lanes in a bank\n", worst);
  }
  return 0;
}

/* Prints:
 * plain
 *        bank   0  4  8 12 16 20 24 28
 *   row 0 unit   0  1  2  3  4  5  6  7
 *   row 1 unit   0  1  2  3  4  5  6  7
 *   row 2 unit   0  1  2  3  4  5  6  7
 *   row 3 unit   0  1  2  3  4  5  6  7
 *   row 4 unit   0  1  2  3  4  5  6  7
 *   row 5 unit   0  1  2  3  4  5  6  7
 *   row 6 unit   0  1  2  3  4  5  6  7
 *   row 7 unit   0  1  2  3  4  5  6  7
 *   a column of units: 8 lanes in a bank
 * swizzled
 *        bank   0  4  8 12 16 20 24 28
 *   row 0 unit   0  1  2  3  4  5  6  7
 *   row 1 unit   1  0  3  2  5  4  7  6
 *   row 2 unit   2  3  0  1  6  7  4  5
 *   row 3 unit   3  2  1  0  7  6  5  4
 *   row 4 unit   4  5  6  7  0  1  2  3
 *   row 5 unit   5  4  7  6  1  0  3  2
 *   row 6 unit   6  7  4  5  2  3  0  1
 *   row 7 unit   7  6  5  4  3  2  1  0
 *   a column of units: 1 lanes in a bank
 */
