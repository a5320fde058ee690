/* Flash attention in plain C: softmax(q k^T / sqrt(d)) v with a causal mask, tile by tile of keys,
 * without the matrix of scores. Each query keeps a maximum, a sum and an output that is scaled down
 * when the maximum grows (online_softmax.c). Keys behind the last query of a tile are skipped. */
#include <math.h>
#include <stdio.h>

enum { kTokens = 50, kDim = 16, kQueries = 8, kKeys = 8 };

typedef struct tile {
  float most[kQueries], sum[kQueries], out[kQueries][kDim];
} tile;

static float dot(const float *a, const float *b)
{
  float sum = 0;
  for (int i = 0; i < kDim; i++) {
    sum += a[i] * b[i];
  }
  return sum;
}

/* Keys from `key` to `end` - 1 into one query's row of the tile. */
static void add_keys(tile *t, int row, const float *q, int key, int end, float (*k)[kDim],
                     float (*v)[kDim])
{
  float score[kKeys], most = t->most[row];
  for (int j = key; j < end; j++) {
    score[j - key] = dot(q, k[j]) / sqrtf(kDim);
    most = fmaxf(most, score[j - key]);
  }
  const float scale = expf(t->most[row] - most);
  t->most[row] = most;
  t->sum[row] *= scale;
  for (int i = 0; i < kDim; i++) {
    t->out[row][i] *= scale;
  }
  for (int j = key; j < end; j++) {
    const float p = expf(score[j - key] - most);
    t->sum[row] += p;
    for (int i = 0; i < kDim; i++) {
      t->out[row][i] += p * v[j][i];
    }
  }
}

static int attend(float (*q)[kDim], float (*k)[kDim], float (*v)[kDim], float (*out)[kDim])
{
  int tiles = 0;
  for (int first = 0; first < kTokens; first += kQueries) {
    const int rows = kTokens - first < kQueries ? kTokens - first : kQueries;
    tile t = {.sum = {0}};
    for (int r = 0; r < rows; r++) {
      t.most[r] = -INFINITY;
    }
    for (int key = 0; key < first + rows; key += kKeys, tiles++) {
      for (int r = 0; r < rows; r++) {
        const int end = first + r + 1 < key + kKeys ? first + r + 1 : key + kKeys;
        if (end > key) {
          add_keys(&t, r, q[first + r], key, end, k, v);
        }
      }
    }
    for (int r = 0; r < rows; r++) {
      for (int i = 0; i < kDim; i++) {
        out[first + r][i] = t.out[r][i] / t.sum[r];
      }
    }
  }
  return tiles;
}

int main(void)
{
  static float q[kTokens][kDim], k[kTokens][kDim], v[kTokens][kDim], out[kTokens][kDim];
  float *all[] = {q[0], k[0], v[0]}, worst = 0;
  for (int i = 0; i < 3 * kTokens * kDim; i++) {
    all[i / (kTokens * kDim)][i % (kTokens * kDim)] = (float)(i * 2654435761u >> 8) / (1 << 23) - 1;
  }
  const int tiles = attend(q, k, v, out);
  for (int t = 0; t < kTokens; t++) { /* the plain way, with a row of scores */
    double p[kTokens], sum = 0;
    for (int j = 0; j <= t; j++) {
      sum += p[j] = exp((double)dot(q[t], k[j]) / sqrt(kDim));
    }
    for (int i = 0; i < kDim; i++) {
      double want = 0;
      for (int j = 0; j <= t; j++) {
        want += p[j] / sum * (double)v[j][i];
      }
      worst = fmaxf(worst, (float)fabs(want - (double)out[t][i]));
    }
  }
  printf("%d of %d tiles, the rest lies behind the mask\n", tiles, 7 * 7);
  printf("%s the plain attention\n", worst < 1e-6f ? "equal (within 1e-6) to" : "differs from");
  return worst < 1e-6f ? 0 : 1;
}

/* Prints:
 * 28 of 49 tiles, the rest lies behind the mask
 * equal (within 1e-6) to the plain attention
 */
