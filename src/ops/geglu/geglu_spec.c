#include "ops/shared/gated/gated_spec.h"

static const spec_case cases[] = {
    TGI_GATED_CASES,
    {"2x61_erf", "edges"},
    {"11x127_interleaved_erf_once", "wide"},
    {"3x7001_erf", "not finite"},
    {"5x96_halves_erf"},
    {"41x1024_erf"},
    {NULL},
};

static const char *const bench[] = {TGI_GATED_BENCH, NULL};

static const spec_bad_scalar bad_fwd[] = {
    TGI_GATED_BAD_FWD,
    {"approximation", 0, TG_BAD_ARGUMENT},
    {"approximation", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    TGI_GATED_BAD_BWD,
    {"approximation", 0, TG_BAD_ARGUMENT},
    {"approximation", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_geglu_fwd = {
    .name = "geglu_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .fill = gated_spec_fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_geglu_bwd = {
    .name = "geglu_bwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "geglu_fwd",
    .fill = gated_spec_fill,
    .batch_invariant = true,
    .bad_scalars = bad_bwd,
};
