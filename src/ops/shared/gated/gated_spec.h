/**
 * What the specs of the gated activations share: special inputs, whichever form gate and up have,
 * and cases. Linked into tests and benchmarks only.
 */
#ifndef TGI_OPS_GATED_SPEC_H
#define TGI_OPS_GATED_SPEC_H

#include "ops/spec.h"
#include <string.h>

typedef struct gated_pair {
  double gate, up;
} gated_pair;

/* Element i of gate and of up. */
static inline void gated_spec_set(tgi_shaped *shaped, int64_t i, gated_pair v)
{
  const tg_tensor *packed = tgi_shaped_tensor(shaped, "gate_up");
  if (!tgi_present(packed)) {
    spec_set(shaped, "gate", i, v.gate);
    spec_set(shaped, "up", i, v.up);
    return;
  }
  const tg_op_info *info = shaped->info;
  int packing = 0;
  for (size_t k = 0; k < info->num_slots; k++) {
    if (strcmp(info->slots[k].name, "packing") == 0) {
      memcpy(&packing, shaped->args.bytes + info->slots[k].offset, sizeof packing);
    }
  }
  const int64_t cols = packed->shape[1] / 2, row = i / cols * 2 * cols, j = i % cols;
  const bool halves = packing == TG_GATE_UP_HALVES;
  spec_set(shaped, "gate_up", row + (halves ? j : 2 * j), v.gate);
  spec_set(shaped, "gate_up", row + (halves ? cols + j : 2 * j + 1), v.up);
}

static inline void gated_spec_scale(tgi_shaped *shaped, double factor)
{
  if (tgi_present(tgi_shaped_tensor(shaped, "gate_up"))) {
    spec_scale(shaped, "gate_up", factor, 0);
  } else {
    spec_scale(shaped, "gate", factor, 0);
    spec_scale(shaped, "up", factor, 0);
  }
}

static inline void gated_spec_pairs(tgi_shaped *shaped, const gated_pair *pairs, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    gated_spec_set(shaped, (int64_t)i, pairs[i]);
  }
}

static inline void gated_spec_fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  static const gated_pair kOne[] = {{1, 0.5}};
  static const gated_pair kEdges[] = {
      {0, 1},      {-0.0, 1},  {1.2785, 3}, {-1.2785, 3}, {0.7517, -2}, {-0.7517, -2}, {3, 0},
      {-3, -1},    {5.5, 4},   {-5.5, 4},   {6.9, 6.9},   {-6.9, -6.9}, {11, 1},       {-11, 1},
      {16.6, 8},   {-16.6, 8}, {40, 0.25},  {-40, 30},    {87, 1},      {-87, 1},      {88.75, 2},
      {-88.75, 2}, {-89.5, 2}, {-104, -5},  {1e-4, 1},    {-1e-4, 1},   {0.5, 1e-6},   {1, -7.5}};
  static const gated_pair kNotFinite[] = {{INFINITY, 1},  {1, INFINITY},   {-INFINITY, 2},
                                          {2, -INFINITY}, {NAN, 1},        {1, NAN},
                                          {-2, 3},        {-INFINITY, -1}, {-1e4, 2}};
  /* The limits of the clamped gate, and their neighbours in bf16. */
  static const gated_pair kLimits[] = {{7, 1},    {7.03125, 1},  {6.96875, 1},  {-7, 1},
                                       {1, 7},    {1, 7.03125},  {1, 6.96875},  {1, -7},
                                       {-7.5, 1}, {1, -7.03125}, {1, -6.96875}, {7, -7}};
  (void)rng;
  if (spec_is(c, "wide")) { /* both flat ends and the bend */
    gated_spec_scale(shaped, 6);
  } else if (spec_is(c, "one")) { /* a single output must not be one that vanishes */
    gated_spec_pairs(shaped, kOne, 1);
  } else if (spec_is(c, "denormal")) {
    gated_spec_scale(shaped, 1e-39);
  } else if (spec_is(c, "huge")) {
    gated_spec_scale(shaped, 1e4);
    gated_spec_pairs(shaped, kOne, 1); /* all the others' gradients may vanish */
  } else if (spec_is(c, "edges")) {
    gated_spec_pairs(shaped, kEdges, sizeof kEdges / sizeof kEdges[0]);
  } else if (spec_is(c, "not finite")) { /* limits; NaN stays where it is; a gate that is shut */
    gated_spec_pairs(shaped, kNotFinite, sizeof kNotFinite / sizeof kNotFinite[0]);
    spec_set_infinite_dy(shaped, sizeof kNotFinite / sizeof kNotFinite[0] - 1);
  } else if (spec_is(c, "limits")) {
    gated_spec_pairs(shaped, kLimits, sizeof kLimits / sizeof kLimits[0]);
  }
}

/* Widths around the lanes of each instruction set and the models' widths, in each form; pieces that
 * end short. "huge", "not finite" and "limits" are above the size that finite differences take. */
#define TGI_GATED_CASES                                                                            \
  {"0x8"}, {"3x0"}, {"0x8_interleaved"}, {"3x0_halves"}, {"1x1", "one"},                           \
      {"1x1_interleaved", "one"}, {"4x1_halves"}, {"3x2_interleaved"}, {"5x3"}, {"5x15_once"},     \
      {"7x16_interleaved"}, {"1x17_interleaved_once"}, {"3x8_interleaved"}, {"3x31_halves"},       \
      {"5x33_interleaved"}, {"33x48_halves_once"}, {"9x24_interleaved"}, {"11x127", "wide"},       \
      {"11x127_interleaved", "wide"}, {"3x37", "denormal"}, {"3x37_interleaved", "denormal"},      \
      {"2x61", "edges"}, {"2x61_interleaved_once", "edges"}, {"2x61_halves", "edges"},             \
      {"3x6997", "huge"}, {"2x67_nodgate"}, {"2x67_nodup"}, {"3x768_once", "wide"},                \
      {"2x2880_interleaved"}, {"2x3072_halves"}, {"300x67"}, {"300x61_interleaved_once"},          \
      {"3x7001", "not finite"}, {"3x7001_interleaved", "not finite"},                              \
      {"3x7001_halves_once", "not finite"}, {"3x7001", "limits"},                                  \
      {"3x7001_interleaved_once", "limits"}, {"41x1024"}, {"41x1024_halves"},                      \
  {                                                                                                \
    "37x1024_interleaved"                                                                          \
  }

#define TGI_GATED_BENCH "8192x3072", "4096x12288", "8192x3072_halves", "8192x2880_interleaved"

/* Of the first case with a few elements, which is packed. */
#define TGI_GATED_BAD_BWD                                                                          \
  {"packing", 0, TG_BAD_ARGUMENT},                                                                 \
  {                                                                                                \
    "packing", 3, TG_BAD_ARGUMENT                                                                  \
  }
#define TGI_GATED_BAD_FWD                                                                          \
  TGI_GATED_BAD_BWD, {"rounding", 0, TG_BAD_ARGUMENT},                                             \
  {                                                                                                \
    "rounding", 3, TG_BAD_ARGUMENT                                                                 \
  }

#endif
