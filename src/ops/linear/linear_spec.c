#include "ops/linear/linear_refusals.h"

/* Sums over k of normal numbers have size sqrt(in): scaled weights keep GELU's input near 1. */
static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *weight = tgi_shaped_tensor(shaped, "weight");
  const double in = (double)weight->shape[1];
  (void)rng;
  spec_scale(shaped, "weight", in > 0 ? 1 / sqrt(in) : 1, 0);
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "large")) { /* products beyond f16's range, their sums mostly within */
    spec_scale(shaped, "x", 1000, 0);
  } else if (spec_is(c, "wide")) { /* GELU's input up to where its tails end */
    spec_scale(shaped, "x", 5, 0);
  }
}

static const spec_case fwd_cases[] = {
    /* nothing to do, and nothing to sum */
    {"0x5x7_bias"},
    {"3x5x0"},
    {"3x0x7"},
    {"2x0x5_bias_gelutanh_residual_save"},
    /* one row to five: gemv and the smallest gemm; edges of every tile */
    {"1x1x1"},
    {"1x7x33_bias"},
    {"2x67x65_gelu_bias_save"},
    {"3x31x17_gelutanh_residual"},
    {"4x129x47_bias_residual"},
    {"5x97x31_bias"},
    {"6x13x1"},
    {"1x1031x19_bias_gelutanh"},
    {"4x769x21_save_gelu"},
    /* ragged and prime extents around tiles of 4, 6 and 12 rows and 8, 16 and 32 columns */
    {"7x17x8"},
    {"11x16x9_bias"},
    {"13x15x16_gelutanh_bias_save", "wide"},
    {"12x33x32"},
    {"23x19x31_gelu", "wide"},
    {"25x62x33_bias_gelu_residual_save"},
    {"37x53x101_residual"},
    {"97x101x103_bias_gelutanh_residual_save"},
    {"193x5x48_bias"},
    /* more than one block of k, of rows, of columns */
    {"19x385x37_bias"},
    {"9x769x67_residual"},
    {"14x1201x35_bias_gelutanh_save"},
    {"8x1537x33_gelu_residual"},
    {"601x20x40"},
    {"3x24x1100_bias"},
    {"17x46x1090_gelutanh"},
    /* real widths */
    {"6x48x144_bias"},
    {"5x128x512_bias_gelutanh_save"},
    {"3x768x770_bias_residual"},
    {"16x1024x68"},
    {"2x2880x50_bias"},
    /* whole vectors of 16 bytes, 1 to 64 rows: parts of k, tiles of 8 to 64 rows that end within */
    {"1x64x136_bias"},
    {"2x8x1000_bias"},
    {"5x1032x264_bias_residual"},
    {"8x2880x48_save_gelu"},
    {"9x1032x72_bias_gelutanh_save"},
    {"13x520x129_yf32_bias_gelu_residual"},
    {"10x264x300_bf32_bias"},
    {"16x2056x40_residual"},
    {"17x1032x264_bias"},
    {"45x520x136_save_gelu"},
    {"64x264x72_yf32_bias_residual"},
    /* tiles of 128 x 128, 64 x 64 and 16 x 32 on tensor cores, whole and ragged */
    {"17x97x40_bias"},
    {"64x138x264_bias_gelu_residual_save"},
    {"65x75x129_bias"},
    {"300x67x131_bias_residual"},
    {"257x266x1416_bias_gelutanh_save"},
    {"32x520x129_yf32_gelu_residual"},
    {"33x2056x1000_bias_gelutanh_save"},
    {"64x264x300_bf32_bias_residual"},
    /* and more: tiles of 128 rows, stored in step and beside the next one */
    {"65x200x264"},
    {"129x72x520_bias"},
    {"300x1032x136_bias_gelu_residual_save"},
    {"257x520x1032_yf32_bias_gelutanh_save"},
    /* more tiles than multiprocessors, the lower ones of 1 to 64 rows */
    {"130x8x17005_yf32_bias"},
    /* the same where rows of y begin anywhere */
    {"65x16x303_bias"},
    {"130x136x1002"},
    {"200x72x517_bias_gelu"},
    {"70x8x17005_bias"},
    /* dtypes side by side */
    {"9x70x50_wf32_bias_residual"},
    {"3x70x50_wf32_yf32_bias_gelu_save"},
    {"21x70x50_yf32_bias"},
    {"2x800x50_yf32_residual"},
    {"10x70x50_xf32_bias"},
    {"1x70x50_xf32_bf32_bias"},
    {"18x450x34_bf32_bias_gelutanh_residual_save"},
    {"7x20x36", "zeros"},
    {"7x20x36_bias", "large"},
    /* TF32 */
    {"0x5x7_bias_tf32"},
    {"2x0x5_bias_gelutanh_residual_save_tf32"},
    {"1x1x1_tf32"},
    {"1x64x136_bias_tf32"},
    {"3x31x17_gelutanh_residual_tf32"},
    {"16x1032x68_bias_gelu_residual_save_tf32"},
    {"16x129x47_bias_residual_tf32"}, /* rows that are not vectors */
    {"17x1032x264_bias_tf32"},
    {"25x62x33_bias_gelu_residual_save_tf32"},
    {"64x138x264_bias_gelu_residual_save_tf32"},
    {"65x75x129_bias_tf32"},
    {"300x68x132_bias_residual_tf32"},
    {"193x5x48_bias_tf32"},
    {"130x8x17005_bias_tf32"}, /* the largest tiles */
    {"65x72x16904_gelutanh_save_tf32"},
    {"7x20x36_bias_tf32", "large"},
    {"10x70x50_xf32_bias_tf32"}, /* beside an operand that is not f32, f32 is not rounded */
    {"9x70x50_wf32_bias_residual_tf32"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"0x5x7"},
    {"3x0x7"},
    {"3x5x0"},
    {"3x0x7_gelu"},
    {"3x5x0_gelutanh"},
    {"1x1x2"},
    {"1x7x33"},
    {"2x67x65_gelu"},
    {"3x31x17_gelutanh", "wide"},
    {"4x129x47_nodx"},
    {"5x97x31_nodweight"},
    {"6x13x1_nodbias"},
    {"7x17x8_nodx_nodweight_gelu"},
    {"11x16x9_nodweight_nodbias_gelutanh"},
    {"13x15x16_nodx_nodbias"},
    {"12x33x32"},
    {"23x19x31_gelu", "wide"},
    {"25x64x33_gelutanh"},
    {"37x53x101"},
    {"129x31x29_gelu"},    /* three groups of rows in dbias */
    {"391x21x26"},         /* two blocks of rows in dweight */
    {"9x33x389_gelutanh"}, /* two blocks of out in dx */
    {"770x13x17_gelu"},    /* two blocks of pairs */
    {"8x17x1540"},         /* several tasks of rows in dweight */
    {"3x1100x12"},
    {"6x48x144_gelutanh"},
    {"16x128x130"},
    {"5x768x66"},
    {"4x1024x35_gelu"},
    {"3x2880x20"},
    {"9x70x50_wf32"},
    {"3x70x50_wf32_yf32_gelu"},
    {"21x70x50_yf32"},
    {"21x70x50_yf32_dwf32_gelutanh"},
    {"390x30x50_dwf32_bf32"},
    {"10x70x50_xf32"},
    {"18x45x34_xf32_dwf32_bf32_gelutanh"},
    {"7x20x36", "zeros"},
    {"65x136x72_gelu"},
    {"136x264x200_dwf32_overwrite"},
    {"130x133x259"},
    {"0x5x7_overwrite"},
    {"0x5x7_gelu_nodx_overwrite"},
    {"3x0x7_overwrite"},
    {"1x7x33_overwrite"},
    {"12x33x32_gelu_overwrite"},
    {"129x31x29_nodx_overwrite"},
    {"391x21x26_nodbias_overwrite"}, /* two blocks of rows in dweight */
    {"390x30x50_dwf32_bf32_overwrite"},
    {"9x70x50_wf32_overwrite"},
    {"16x128x136_nodx_overwrite"},
    /* whole vectors: Hopper's tiles; sums added in 16 bits and in f32 */
    {"136x200x264"},
    {"264x72x136_dwf32"},
    {"264x72x136_gelu"},
    {"200x328x72_dwf32_overwrite"},
    /* and small gradients over many rows, in parts along these: two, two, four and seven */
    {"1033x136x200_nodx_nodbias_dwf32"},
    {"1033x72x40_nodx_nodbias_dwf32_overwrite"},
    {"2056x136x200_nodx_nodbias_overwrite"},
    {"3600x264x72_nodx_nodbias_overwrite"},
    /* so many outputs that dx is made in parts along them */
    {"70x72x32776_nodweight_nodbias"},
    /* TF32: tiles of every size and form */
    {"0x5x7_overwrite_tf32"},
    {"3x0x7_tf32"},
    {"3x5x0_gelutanh_tf32"},
    {"1x7x33_tf32"},
    {"16x128x136_gelu_tf32"},
    {"5x97x31_nodweight_tf32"},
    {"25x64x33_gelutanh_tf32"},
    {"37x53x101_tf32"},
    {"136x264x200_overwrite_tf32"},
    {"130x133x259_tf32"},
    {"391x21x26_nodbias_overwrite_tf32"},
    {"65x16904x72_nodweight_tf32"}, /* the largest tiles: dx, dweight */
    {"130x17005x8_nodweight_tf32"},
    {"72x16904x65_nodx_tf32"},
    {"8x17005x130_nodx_overwrite_tf32"},
    {"10x70x50_xf32_tf32"},
    {"9x70x50_wf32_tf32"},
    {NULL},
};

/* GPT-2's layers and head at 256 and 1024 rows, a small model's, and one token. */
static const char *const bench_fwd[] = {
    "256x768x3072",
    "1024x768x3072",
    "256x768x50257",
    "1024x768x50257",
    "512x1024x3072",
    "2048x192x768",
    "1x768x3072",
    "1x768x50257",
    "4x768x50257",
    "256x768x3072_bias_gelutanh_save",
    NULL,
};

/* dx and dweight apart, then together. */
static const char *const bench_bwd[] = {
    "256x768x3072_nodweight_nodbias",
    "256x768x3072_nodx_nodbias",
    "1024x768x3072_nodweight_nodbias",
    "1024x768x3072_nodx_nodbias",
    "256x768x50257_nodweight_nodbias",
    "256x768x50257_nodx_nodbias",
    "1024x768x50257_nodweight_nodbias",
    "1024x768x50257_nodx_nodbias",
    "512x1024x3072_nodweight_nodbias",
    "512x1024x3072_nodx_nodbias",
    "2048x192x768",
    "256x768x3072_gelutanh",
    NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"activation", -1, TG_BAD_ARGUMENT},
    {"activation", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_refusal fwd_refuses[] = {
    {.entry = "sm90",
     .rule = "f32, other than y and biases",
     .reason = "the tiles are for 16-bit operands; with allow_tf32, sm80 multiplies in TF32",
     .holds = tgi_linear_fwd_has_f32},
    {.entry = "sm90",
     .rule = "more than 64 rows",
     .reason = "sm80's kernel starts Hopper's tiles or cublasLt",
     .holds = tgi_linear_fwd_has_rows},
    {.entry = "sm90",
     .rule = "rows whose start or size is not a multiple of 16 bytes",
     .reason = "tiles are copied by TMA, in vectors of 16 bytes",
     .holds = tgi_linear_fwd_has_no_vectors},
    {.entry = "sm90",
     .rule = "nothing to multiply",
     .reason = "TMA knows no empty tensors",
     .holds = tgi_linear_fwd_is_empty},
    {.entry = NULL},
};

const spec spec_linear_fwd = {
    .name = "linear_fwd",
    .cases = fwd_cases,
    .bench = bench_fwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .tf32_ceiling = 2e-3,
    .fill = fill,
    .batch_invariant = true,
    .rows_of_first_class = 64,
    .refuses = fwd_refuses,
    .bad_scalars = bad_scalars,
};

const spec spec_linear_bwd = {
    .name = "linear_bwd",
    .cases = bwd_cases,
    .bench = bench_bwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .tf32_ceiling = 4e-3,
    .gradient_of = "linear_fwd",
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};
