/* The tables of rope against the rotary embedding classes of transformers, and calls that
 * tg_rope_table must refuse. */
#include "golden/rope/rope_dynamic_values.h"
#include "golden/rope/rope_table_values.h"
#include "golden/rope/rope_yarn_values.h"

#include "core/values/half.h"
#include "tegula/rope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { kDimMax = 128 };

typedef struct table_case {
  const char *name;
  tg_rope_parameters parameters;
  double scale;
  const uint32_t *inv_freq, *cos, *sin;
} table_case;

#define GOLDEN(name, scale, ...)                                                                   \
  {                                                                                                \
#name, {__VA_ARGS__ }, scale, kGolden##name##InvFreq, kGolden##name##Cos, kGolden##name##Sin   \
  }

static const table_case cases[] = {
    GOLDEN(Default, 1, .type = TG_ROPE_DEFAULT, .rotary_dim = 128, .theta = 1e6),
    GOLDEN(Linear, 1, .type = TG_ROPE_LINEAR, .rotary_dim = 128, .theta = 1e4, .factor = 3.3),
    GOLDEN(DynamicShort, 1, .type = TG_ROPE_DYNAMIC, .rotary_dim = 128, .theta = 1e4, .factor = 2.5,
           .max_position_embeddings = 8192, .seq_len = 4096),
    GOLDEN(DynamicLong, 1, .type = TG_ROPE_DYNAMIC, .rotary_dim = 128, .theta = 1e4, .factor = 2.5,
           .max_position_embeddings = 1500, .seq_len = 4096),
    GOLDEN(Llama31, 1, .type = TG_ROPE_LLAMA3, .rotary_dim = 128, .theta = 5e5, .factor = 8,
           .original_max_position_embeddings = 8192, .low_freq_factor = 1, .high_freq_factor = 4),
    GOLDEN(Yarn, 1.138629436111989, .type = TG_ROPE_YARN, .rotary_dim = 128, .theta = 1e6,
           .factor = 4, .original_max_position_embeddings = 32768, .beta_fast = 32, .beta_slow = 1,
           .truncate = true),
    GOLDEN(YarnMscale, 1.0857263992561355, .type = TG_ROPE_YARN, .rotary_dim = 64, .theta = 1e4,
           .factor = 40, .original_max_position_embeddings = 4096, .beta_fast = 24, .beta_slow = 2,
           .mscale = 1, .mscale_all_dim = 0.707, .truncate = true),
    GOLDEN(YarnFactor, 1.25, .type = TG_ROPE_YARN, .rotary_dim = 64, .theta = 1e4, .factor = 2,
           .original_max_position_embeddings = 4096, .beta_fast = 32, .beta_slow = 1,
           .attention_factor = 1.25, .truncate = true),
    GOLDEN(GptOss, 1.3465735902799727, .type = TG_ROPE_YARN, .rotary_dim = 64, .theta = 150000,
           .factor = 32, .original_max_position_embeddings = 4096, .beta_fast = 32, .beta_slow = 1),
};

enum { kCases = sizeof cases / sizeof cases[0] };

static tg_tensor view(void *data, tg_dtype dtype, int64_t seq, int64_t width)
{
  const int64_t shape[3] = {1, seq, width};
  return tg_tensor_view(data, dtype, 3, shape);
}

static float golden(const uint32_t *bits, int64_t i)
{
  return tgi_bits_float(bits[i]);
}

/* One position of a case, in memory of kDimMax values each. */
static void build(const table_case *c, tg_rope_pairing pairing, int64_t position, tg_dtype dtype,
                  int64_t width, void *cos, void *sin)
{
  tg_error error;
  if (tg_rope_table(&c->parameters, pairing, position, view(cos, dtype, 1, width),
                    view(sin, dtype, 1, width), &error) != TG_OK) {
    fail_msg("%s: %s", c->name, error.text);
  }
}

static int64_t places(float a, float b)
{
  return llabs((int64_t)(int32_t)tgi_float_bits(a) - (int64_t)(int32_t)tgi_float_bits(b));
}

static float cosine(const table_case *c, float angle)
{
  return (float)cos((double)angle) * (float)c->scale;
}

static float sine(const table_case *c, float angle)
{
  return (float)sin((double)angle) * (float)c->scale;
}

/* True if the column of pair i follows from this frequency, at every golden position. */
static bool column_follows(const table_case *c, int64_t i, float inverse)
{
  for (int p = 0; p < kGoldenPositions; p++) {
    float cos[kDimMax], sin[kDimMax];
    const float angle = (float)kGoldenPosition[p] * inverse;
    build(c, TG_ROPE_HALVES, kGoldenPosition[p], TG_F32, c->parameters.rotary_dim / 2, cos, sin);
    if (tgi_float_bits(cos[i]) != tgi_float_bits(cosine(c, angle)) ||
        tgi_float_bits(sin[i]) != tgi_float_bits(sine(c, angle))) {
      return false;
    }
  }
  return true;
}

/* A float so many places away from another. */
static float moved_by(float value, int count)
{
  return tgi_bits_float(tgi_float_bits(value) + (uint32_t)count);
}

/* The power in inv_freq is correctly rounded here and within 1 ulp in PyTorch, and its reciprocal
 * may double that: a frequency may be two places away, in no more than two columns of a case.
 * (Which ones is a matter of theta and rotary_dim alone.) */
static void test_frequencies(void **state)
{
  (void)state;
  for (int k = 0; k < kCases; k++) {
    const table_case *c = &cases[k];
    int moved = 0;
    for (int64_t i = 0; i < c->parameters.rotary_dim / 2; i++) {
      const float inverse = golden(c->inv_freq, i);
      bool follows = column_follows(c, i, inverse);
      moved += !follows;
      for (int count = -2; count <= 2 && !follows; count++) {
        follows = column_follows(c, i, moved_by(inverse, count));
      }
      if (!follows) {
        fail_msg("%s: pair %lld does not turn by %a", c->name, (long long)i, (double)inverse);
      }
    }
    if (moved > 2) {
      fail_msg("%s: %d frequencies differ", c->name, moved);
    }
  }
}

/* Cosines and sines are correctly rounded here and within 1 ulp in PyTorch: one place in f32, and
 * with the scale's product two; in bf16 and f16 all bits, where the frequency is the same. */
static void test_values(void **state)
{
  (void)state;
  for (int k = 0; k < kCases; k++) {
    const table_case *c = &cases[k];
    const int64_t half = c->parameters.rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
      if (!column_follows(c, i, golden(c->inv_freq, i))) {
        continue;
      }
      for (int p = 0; p < kGoldenPositions; p++) {
        const float want[2] = {golden(c->cos, p * half + i), golden(c->sin, p * half + i)};
        float wide[2][kDimMax];
        uint16_t narrow[2][kDimMax];
        build(c, TG_ROPE_HALVES, kGoldenPosition[p], TG_F32, half, wide[0], wide[1]);
        for (int side = 0; side < 2; side++) {
          if (places(wide[side][i], want[side]) > 2) {
            fail_msg("%s, position %lld, pair %lld: expected %a, got %a", c->name,
                     (long long)kGoldenPosition[p], (long long)i, (double)want[side],
                     (double)wide[side][i]);
          }
        }
        build(c, TG_ROPE_HALVES, kGoldenPosition[p], TG_BF16, half, narrow[0], narrow[1]);
        assert_int_equal(narrow[0][i], tgi_f32_to_bf16(want[0]));
        assert_int_equal(narrow[1][i], tgi_f32_to_bf16(want[1]));
        build(c, TG_ROPE_HALVES, kGoldenPosition[p], TG_F16, half, narrow[0], narrow[1]);
        assert_int_equal(narrow[0][i], tgi_f32_to_f16(wide[0][i]));
        assert_int_equal(narrow[1][i], tgi_f32_to_f16(wide[1][i]));
      }
    }
  }
}

/* Full tables repeat the half ones, in the order of the pairing; rows follow one another from the
 * first position on, at any stride, and nothing between them is written. */
static void test_layouts(void **state)
{
  enum { kSeq = 5, kStride = kDimMax + 3, kFirst = 7 };
  const table_case *c = &cases[0];
  (void)state;
  for (int pairing = TG_ROPE_HALVES; pairing <= TG_ROPE_INTERLEAVED; pairing++) {
    static float cos[kSeq * kStride], sin[kSeq * kStride];
    tg_tensor cos_view = view(cos, TG_F32, kSeq, 128), sin_view = view(sin, TG_F32, kSeq, 128);
    cos_view.stride[0] = sin_view.stride[0] = kSeq * kStride;
    cos_view.stride[1] = sin_view.stride[1] = kStride;
    cos_view.stride[2] = sin_view.stride[2] = 1;
    for (int i = 0; i < kSeq * kStride; i++) {
      cos[i] = sin[i] = -7;
    }
    assert_int_equal(
        tg_rope_table(&c->parameters, (tg_rope_pairing)pairing, kFirst, cos_view, sin_view, NULL),
        TG_OK);
    for (int t = 0; t < kSeq; t++) {
      float half_cos[kDimMax], half_sin[kDimMax];
      build(c, TG_ROPE_HALVES, kFirst + t, TG_F32, 64, half_cos, half_sin);
      for (int j = 0; j < kStride; j++) {
        const int pair = pairing == TG_ROPE_HALVES ? j % 64 : j / 2;
        const float want_cos = j < 128 ? half_cos[pair] : -7,
                    want_sin = j < 128 ? half_sin[pair] : -7;
        assert_int_equal(tgi_float_bits(cos[t * kStride + j]), tgi_float_bits(want_cos));
        assert_int_equal(tgi_float_bits(sin[t * kStride + j]), tgi_float_bits(want_sin));
      }
    }
  }
}

static void test_empty(void **state)
{
  tg_error error = {.status = TG_IO, .text = "old"};
  (void)state;
  assert_int_equal(tg_rope_table(&cases[0].parameters, TG_ROPE_HALVES, 0, view(NULL, TG_F32, 0, 64),
                                 view(NULL, TG_F32, 0, 64), &error),
                   TG_OK);
  assert_int_equal(error.status, TG_OK);
  assert_string_equal(error.text, "");
}

/* ---- refusals ---- */

typedef struct call {
  tg_rope_parameters parameters;
  tg_rope_pairing pairing;
  int64_t first;
  tg_tensor cos, sin;
} call;

static float cos_memory[4 * kDimMax], sin_memory[4 * kDimMax];

static call good_call(int k)
{
  const int64_t half = cases[k].parameters.rotary_dim / 2;
  return (call){cases[k].parameters, TG_ROPE_HALVES, 3, view(cos_memory, TG_F32, 4, half),
                view(sin_memory, TG_F32, 4, half)};
}

/* Refused with a message of the grammar, and nothing written. */
static void refuse(const call *c, tg_status status, const char *argument)
{
  tg_error error = {0};
  char prefix[80];
  snprintf(prefix, sizeof prefix, "rope_table: %s: expected ", argument);
  cos_memory[0] = sin_memory[0] = 5;
  const tg_status got = tg_rope_table(&c->parameters, c->pairing, c->first, c->cos, c->sin, &error);
  if (got != status || error.status != status || strncmp(error.text, prefix, strlen(prefix)) != 0 ||
      !strstr(error.text, ", got ")) {
    fail_msg("expected %s and \"%s...\", got %s and \"%s\"", tg_status_name(status), prefix,
             tg_status_name(got), error.text);
  }
  assert_int_equal(tg_rope_table(&c->parameters, c->pairing, c->first, c->cos, c->sin, NULL),
                   status);
  assert_true(cos_memory[0] == 5 && sin_memory[0] == 5);
}

enum { kDynamic = 3, kLlama = 4, kYarn = 5 };

#define REFUSE_FIELD(k, field, value)                                                              \
  do {                                                                                             \
    call broken = good_call(k);                                                                    \
    broken.parameters.field = value;                                                               \
    refuse(&broken, TG_BAD_ARGUMENT, #field);                                                      \
  } while (0)

static void test_bad_parameters(void **state)
{
  tg_error error;
  const call c = good_call(0);
  (void)state;
  assert_int_equal(tg_rope_table(NULL, c.pairing, 0, c.cos, c.sin, &error), TG_BAD_ARGUMENT);
  REFUSE_FIELD(0, type, (tg_rope_type)0);
  REFUSE_FIELD(0, type, (tg_rope_type)6);
  REFUSE_FIELD(0, rotary_dim, 0);
  REFUSE_FIELD(0, rotary_dim, -2);
  REFUSE_FIELD(0, rotary_dim, 7);
  REFUSE_FIELD(0, rotary_dim, INT64_MAX - 1);
  REFUSE_FIELD(kDynamic, rotary_dim, 2);
  REFUSE_FIELD(0, theta, 1);
  REFUSE_FIELD(0, theta, NAN);
  REFUSE_FIELD(0, theta, INFINITY);
  for (int k = 1; k < kCases; k++) {
    REFUSE_FIELD(k, factor, 0);
    REFUSE_FIELD(k, factor, NAN);
  }
  REFUSE_FIELD(kDynamic, max_position_embeddings, 0);
  REFUSE_FIELD(kDynamic, seq_len, -1);
  REFUSE_FIELD(kLlama, original_max_position_embeddings, 0);
  REFUSE_FIELD(kLlama, low_freq_factor, 0);
  REFUSE_FIELD(kLlama, high_freq_factor, 1);
  REFUSE_FIELD(kLlama, high_freq_factor, INFINITY);
  REFUSE_FIELD(kYarn, original_max_position_embeddings, -1);
  REFUSE_FIELD(kYarn, beta_fast, 0);
  REFUSE_FIELD(kYarn, beta_slow, -1);
  REFUSE_FIELD(kYarn, attention_factor, -1);
  REFUSE_FIELD(kYarn, attention_factor, INFINITY);
  REFUSE_FIELD(kYarn, mscale, NAN);
  REFUSE_FIELD(kYarn, mscale_all_dim, INFINITY);
}

static void test_bad_calls(void **state)
{
  call c = good_call(0);
  (void)state;
  c.pairing = (tg_rope_pairing)0;
  refuse(&c, TG_BAD_ARGUMENT, "pairing");
  c = good_call(0), c.pairing = (tg_rope_pairing)3;
  refuse(&c, TG_BAD_ARGUMENT, "pairing");
  c = good_call(0), c.first = -1;
  refuse(&c, TG_BAD_ARGUMENT, "first_position");
  c = good_call(0), c.first = (1 << 24) - 2; /* the last of four would be 2^24 + 1 */
  refuse(&c, TG_BAD_ARGUMENT, "first_position");
  c = good_call(0), c.first = INT64_MAX;
  refuse(&c, TG_BAD_ARGUMENT, "first_position");
  c = good_call(0), c.cos = (tg_tensor){0};
  refuse(&c, TG_BAD_DTYPE, "cos");
  c = good_call(0), c.cos.dtype = TG_F64;
  refuse(&c, TG_BAD_DTYPE, "cos");
  c = good_call(0), c.sin.dtype = TG_BF16;
  refuse(&c, TG_BAD_DTYPE, "sin");
  c = good_call(0), c.cos.ndim = 2;
  refuse(&c, TG_BAD_SHAPE, "cos");
  c = good_call(0), c.cos.shape[0] = 2;
  refuse(&c, TG_BAD_SHAPE, "cos");
  c = good_call(0), c.cos.shape[1] = -1;
  refuse(&c, TG_BAD_SHAPE, "cos");
  c = good_call(0), c.cos.shape[1] = INT64_MAX;
  refuse(&c, TG_BAD_SHAPE, "cos");
  c = good_call(0), c.cos.shape[2] = 63;
  refuse(&c, TG_BAD_SHAPE, "cos");
  c = good_call(0), c.sin.shape[1] = 3;
  refuse(&c, TG_BAD_SHAPE, "sin");
  c = good_call(0), c.sin.stride[0] = 256, c.sin.stride[1] = 63, c.sin.stride[2] = 1;
  refuse(&c, TG_BAD_SHAPE, "sin");
  c = good_call(0), c.sin.stride[0] = 256, c.sin.stride[1] = 128, c.sin.stride[2] = 2;
  refuse(&c, TG_BAD_SHAPE, "sin");
  c = good_call(0), c.sin.stride[0] = 256, c.sin.stride[1] = INT64_MAX, c.sin.stride[2] = 1;
  refuse(&c, TG_BAD_SHAPE, "sin");
  c = good_call(0), c.cos.data = NULL;
  refuse(&c, TG_BAD_ARGUMENT, "cos");
  c = good_call(0), c.sin.data = (char *)c.sin.data + 1;
  refuse(&c, TG_BAD_ARGUMENT, "sin");
  c = good_call(0), c.sin.device = TG_DEVICE_CUDA(0);
  refuse(&c, TG_BAD_ARGUMENT, "sin");
  c = good_call(0), c.sin.data = cos_memory + 255; /* the last value of cos */
  refuse(&c, TG_BAD_ARGUMENT, "sin");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frequencies),    cmocka_unit_test(test_values),
      cmocka_unit_test(test_layouts),        cmocka_unit_test(test_empty),
      cmocka_unit_test(test_bad_parameters), cmocka_unit_test(test_bad_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
