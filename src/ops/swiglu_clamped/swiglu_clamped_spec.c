#include "ops/shared/gated/gated_spec.h"

static const spec_case cases[] = {
    TGI_GATED_CASES,
    {NULL},
};

static const char *const bench[] = {TGI_GATED_BENCH, NULL};

static const spec_bad_scalar bad_fwd[] = {
    TGI_GATED_BAD_FWD,
    {"alpha", 0, TG_BAD_ARGUMENT},
    {"alpha", -1, TG_BAD_ARGUMENT},
    {"alpha", INFINITY, TG_BAD_ARGUMENT},
    {"alpha", NAN, TG_BAD_ARGUMENT},
    {"limit", 0, TG_BAD_ARGUMENT},
    {"limit", -1, TG_BAD_ARGUMENT},
    {"limit", INFINITY, TG_BAD_ARGUMENT},
    {"limit", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    TGI_GATED_BAD_BWD,
    {"alpha", 0, TG_BAD_ARGUMENT},
    {"alpha", -1, TG_BAD_ARGUMENT},
    {"alpha", INFINITY, TG_BAD_ARGUMENT},
    {"alpha", NAN, TG_BAD_ARGUMENT},
    {"limit", 0, TG_BAD_ARGUMENT},
    {"limit", -1, TG_BAD_ARGUMENT},
    {"limit", INFINITY, TG_BAD_ARGUMENT},
    {"limit", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_swiglu_clamped_fwd = {
    .name = "swiglu_clamped_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .fill = gated_spec_fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_swiglu_clamped_bwd = {
    .name = "swiglu_clamped_bwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "swiglu_clamped_fwd",
    .fill = gated_spec_fill,
    .batch_invariant = true,
    .bad_scalars = bad_bwd,
};
