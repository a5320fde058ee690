#include "ops/spec.h"

#include <string.h>

static void fill_ids(tgi_shaped *shaped, const char *slot, int64_t rows, const spec_case *c,
                     spec_rng *rng)
{
  const int64_t tokens = tgi_shaped_tensor(shaped, slot)->shape[0];
  for (int64_t i = 0; i < tokens; i++) {
    int64_t id = spec_below(rng, rows);
    if (spec_is(c, "one id")) {
      id = rows / 2;
    } else if (spec_is(c, "first and last")) {
      id = i % 3 ? rows - 1 : 0;
    }
    spec_set(shaped, slot, i, (double)id);
  }
}

/* Rows that ids may name: those of a table that the call has. */
static int64_t rows_of(tgi_shaped *shaped, const char *slot)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  return t && tgi_present(t) ? t->shape[0] : 1;
}

static void fill_forward(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_ids(shaped, "ids", rows_of(shaped, "table"), c, rng);
  if (tgi_present(tgi_shaped_tensor(shaped, "position_ids"))) {
    fill_ids(shaped, "position_ids", rows_of(shaped, "positions"), c, rng);
  }
}

static void fill_backward(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_ids(shaped, "ids", rows_of(shaped, "dtable"), c, rng);
  if (tgi_present(tgi_shaped_tensor(shaped, "position_ids"))) {
    fill_ids(shaped, "position_ids", rows_of(shaped, "dpositions"), c, rng);
  }
}

/* More rows than the ids reach are no fault. */
static bool free_extent(const char *slot, int axis)
{
  return axis == 0 && (strstr(slot, "table") || strstr(slot, "positions"));
}

static const spec_case fwd_cases[] = {
    {"21x300x100_p31_pids_i32"},
    {"0x5x8"},
    {"3x5x0"},
    {"1x1x1"},
    {"7x3x17_i32"},
    {"13x97x48", "first and last"},
    {"64x11x127_p64"},
    {"60x50x33_p20_s20", "one id"},
    {"61x50x16_p24_s20_o4"}, /* the last sequence is cut short */
    {"5x30x768_p1024_s1_o1023"},
    {"4x9x2880"},
    {"9x40x64_p7_pids", "first and last"},
    {"3x50257x8_p1024_o1021"},
    {"2x151936x3"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"21x300x100_p31_pids_i32"},
    {"0x5x8_p4"},
    {"3x5x0"},
    {"1x1x1"},
    {"7x3x17_i32"},
    {"13x97x48", "first and last"},
    {"64x11x127_p64"},
    {"60x50x33_p20_s20", "one id"},
    {"61x50x16_p24_s20_o4"},
    {"61x50x16_p80_s70_o3"}, /* seq_len above the number of tokens */
    {"5x30x768_p1024_s1_o1023"},
    {"4x9x2880"},
    {"40x40x64_p7_pids_nodtable"},
    {"90x3000x30_p100_nodpositions"},
    {"33x9x40_nodtable_nodpositions"},
    {"120x2049x260_df32"}, /* two digits of the sort, two strips of columns */
    {"150x7x65_p30_s30_df32", "first and last"},
    {"300x5000x5"},
    {"70x9x5_p5000_pids"},
    {NULL},
};

/* Enough rows of random ids that neither the table nor y stays in the caches. */
static const char *const fwd_bench[] = {"65536x50257x768", "65536x50257x768_p1024_s1024", NULL};
static const char *const bwd_bench[] = {"65536x50257x768", "65536x50257x768_p1024_s1024", NULL};

static const spec_bad_scalar bad[] = {
    {"seq_len", -1, TG_BAD_ARGUMENT},
    {"position_offset", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_embedding_fwd = {
    .name = "embedding_fwd",
    .cases = fwd_cases,
    .bench = fwd_bench,
    .f32_bound = 6e-8,
    .f16_ceiling = 1e-3,
    .bf16_ceiling = 8e-3,
    .fill = fill_forward,
    .bad_scalars = bad,
    .free_extent = free_extent,
};

const spec spec_embedding_bwd = {
    .name = "embedding_bwd",
    .cases = bwd_cases,
    .bench = bwd_bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .gradient_of = "embedding_fwd",
    .fill = fill_backward,
    .bad_scalars = bad,
    .free_extent = free_extent,
};
