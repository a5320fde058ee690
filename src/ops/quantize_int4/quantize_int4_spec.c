#include "ops/shared/quantisation/quant_inputs.h"

/* Each group size with whole and short groups; widths around units and segments. */
static const spec_case cases[] = {
    {"3x64_asym"}, /* one more column is one more byte and group */
    {"0x64"},
    {"5x0_asym"},
    {"1x1"},
    {"1x1_asym"},
    {"3x2_sf16"},
    {"5x15_g128"},
    {"5x16_asym"},
    {"5x31_g64_sf16"},
    {"5x32_asym_sf16"},
    {"5x33"},
    {"5x47_asym"},
    {"5x63_g64"},
    {"5x65_g64_asym"},
    {"3x95_sf16"},
    {"3x127_g128_asym"},
    {"3x128_g128"},
    {"3x129_g128_sf16"},
    {"9x160", "ties"},
    {"9x160_asym", "ties"},
    {"9x160_g64_asym_sf16", "ties"},
    {"5x200", "extremes"},
    {"5x200_g128_asym", "extremes"},
    {"5x200_sf16", "extremes"},
    {"5x200_g64_asym_sf16", "extremes"},
    {"4x130", "denormal"},
    {"4x130_asym", "denormal"},
    {"4x130_g64_sf16", "denormal"},
    {"4x130_g128_asym_sf16", "denormal"},
    {"4x100", "zeros"},
    {"4x100_asym_sf16", "zeros"},
    {"4x100_asym", "constant"},
    {"4x100_sf16", "constant"},
    {"4x100", "negative constant"},
    {"4x100_asym_sf16", "negative constant"},
    {"4x100_asym", "positive"},
    {"4x100_g64", "negative"},
    {"40x96_asym", "sparse"},
    {"40x96_g64_sf16", "sparse"},
    {"30x97", "not finite"},
    {"30x97_asym_sf16", "not finite"},
    {"3x768_g128_asym_sf16"},
    {"2x2049"},
    {"2x4096_g64_asym"},
    {"2x5119_g128_sf16"},
    {"300x67_asym"},
    {NULL},
};

static const char *const bench[] = {"4096x4096_sf16", "12288x4096_g128_sf16",
                                    "12288x4096_g128_asym_sf16", "12288x4096", NULL};

static const spec_bad_scalar bad[] = {
    {"group_size", 0, TG_BAD_ARGUMENT},   {"group_size", -32, TG_BAD_ARGUMENT},
    {"group_size", 16, TG_BAD_ARGUMENT},  {"group_size", 96, TG_BAD_ARGUMENT},
    {"group_size", 256, TG_BAD_ARGUMENT}, {NULL, 0, TG_OK},
};

const spec spec_quantize_int4_fwd = {
    .name = "quantize_int4_fwd",
    .cases = cases,
    .bench = bench,
    .bit_exact = true,
    .fill = spec_fill_quantized,
    .batch_invariant = true,
    .bad_scalars = bad,
};
