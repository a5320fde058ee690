#include "ops/shared/quantisation/quant_inputs.h"

/* Widths around the lanes and units of each instruction set; parts of one row and of several. */
static const spec_case cases[] = {
    {"3x5"},
    {"0x5"},
    {"0x5_tensor_asym"},
    {"0x5_column_asymi8"},
    {"4x0_asym"},
    {"4x0_tensor"},
    {"1x1_asym"},
    {"1x1_tensor"},
    {"7x1_column_asym"},
    {"5x15_asymi8"},
    {"5x16_column"},
    {"6x17_tensor_asym"},
    {"3x31_column_asymi8"},
    {"9x63_column_asym", "not finite"},
    {"9x64_asym", "ties"},
    {"9x64_tensor", "ties"},
    {"67x65_column_asym", "ties"},
    {"5x127", "extremes"},
    {"5x127_asym", "extremes"},
    {"200x33_tensor_asym", "extremes"},
    {"131x48_column", "extremes"},
    {"3x129", "denormal"},
    {"3x129_asym", "denormal"},
    {"65x7_column_asym", "denormal"},
    {"4x100", "zeros"},
    {"4x100_asym", "zeros"},
    {"4x100_column_asymi8", "zeros"},
    {"4x100_asym", "constant"},
    {"4x100", "negative constant"},
    {"4x100_column_asym", "negative constant"},
    {"4x100_asymi8", "positive"},
    {"70x19_column_asym", "negative"},
    {"4x100", "positive"},
    {"40x48_asym", "sparse"},
    {"40x48_column", "sparse"},
    {"30x96", "not finite"},
    {"30x96_asym", "not finite"},
    {"150x67_column", "not finite"},
    {"3x90_tensor_asymi8", "not finite"},
    {"3x768_asym"},
    {"2x4096"},
    {"129x1024_column"}, /* several parts of several rows, several pieces of columns */
    {"300x521_tensor_asym"},
    {"300x67"},
    {NULL},
};

static const char *const bench[] = {"4096x4096", "12288x4096", "12288x4096_column_asym",
                                    "12288x4096_tensor", NULL};

static const spec_bad_scalar bad[] = {
    {"granularity", 0, TG_BAD_ARGUMENT},
    {"granularity", 4, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_quantize_int8_fwd = {
    .name = "quantize_int8_fwd",
    .cases = cases,
    .bench = bench,
    .bit_exact = true,
    .fill = spec_fill_quantized,
    .bad_scalars = bad,
};
