/* The tables of rope. Each f32 statement below is one rounded operation of transformers'
 * modeling_rope_utils.py in PyTorch; -ffp-contract=off keeps them apart. A quotient with a tensor
 * below the line is there a product with its reciprocal. */
#include "core/error_record.h"
#include "core/tensor_view.h"
#include "core/values/half.h"
#include "ops/shared/rotation/rotation.h"

#include <stddef.h>

static const double kTwoPi = 6.283185307179586;

/* What the frequencies of all pairs have in common, after the checks. */
typedef struct frequencies {
  const tg_rope_parameters *p;
  float base;       /* theta, or DYNAMIC's */
  double low, high; /* YARN: bounds of the ramp */
  float scale;      /* of both tables */
} frequencies;

/* base^(2 i / rotary_dim) in f32, the power correctly rounded but for ties of f64. */
static float wavelength(const frequencies *f, int64_t i)
{
  const float exponent = (float)(2 * i) / (float)f->p->rotary_dim;
  return (float)pow((double)f->base, (double)exponent);
}

static float linear(const tg_rope_parameters *p, float inverse)
{
  return inverse / (float)p->factor;
}

/* Long waves are stretched by factor, short ones stay, and between them goes a smooth way. */
static float llama3(const tg_rope_parameters *p, float inverse)
{
  const double original = (double)p->original_max_position_embeddings;
  const float length = (1.0f / inverse) * (float)kTwoPi;
  if (length > (float)(original / p->low_freq_factor)) {
    return inverse / (float)p->factor;
  }
  if (length < (float)(original / p->high_freq_factor)) {
    return inverse;
  }
  const float turns = (1.0f / length) * (float)original;
  const float smooth =
      (turns - (float)p->low_freq_factor) / (float)(p->high_freq_factor - p->low_freq_factor);
  const float stretched = (1.0f - smooth) * inverse / (float)p->factor;
  const float kept = smooth * inverse;
  return stretched + kept;
}

static float yarn(const frequencies *f, int64_t i, float length)
{
  const double width = f->high == f->low ? 0.001 : f->high - f->low;
  const float ramp = ((float)i - (float)f->low) / (float)width;
  const float kept = 1.0f - (ramp < 0 ? 0.0f : ramp > 1 ? 1.0f : ramp);
  const float interpolated = 1.0f / ((float)f->p->factor * length), extrapolated = 1.0f / length;
  return interpolated * (1.0f - kept) + extrapolated * kept;
}

static float inverse_frequency(const frequencies *f, int64_t i)
{
  const float length = wavelength(f, i), inverse = 1.0f / length;
  switch (f->p->type) {
  case TG_ROPE_LINEAR:
    return linear(f->p, inverse);
  case TG_ROPE_LLAMA3:
    return llama3(f->p, inverse);
  case TG_ROPE_YARN:
    return yarn(f, i, length);
  case TG_ROPE_DEFAULT:
  case TG_ROPE_DYNAMIC:
    break;
  }
  return inverse;
}

/* A length beyond max_position_embeddings is a tensor there, and so is all that follows from it. */
static float dynamic_base(const tg_rope_parameters *p)
{
  const double most = (double)p->max_position_embeddings;
  const double power = (double)p->rotary_dim / (double)(p->rotary_dim - 2);
  if (p->seq_len <= p->max_position_embeddings) {
    return (float)(p->theta * pow(p->factor * most / most - (p->factor - 1), power));
  }
  const float stretch = (float)p->seq_len * (float)p->factor / (float)most;
  const float excess = stretch - (float)(p->factor - 1);
  return (float)pow((double)excess, power) * (float)p->theta;
}

/* The dimension that turns so many times over the original length. */
static double correction_dim(const tg_rope_parameters *p, double turns)
{
  const double original = (double)p->original_max_position_embeddings;
  return (double)p->rotary_dim * log(original / (turns * kTwoPi)) / (2 * log(p->theta));
}

static void yarn_bounds(frequencies *f)
{
  const double low = correction_dim(f->p, f->p->beta_fast);
  const double high = correction_dim(f->p, f->p->beta_slow);
  const double last = (double)(f->p->rotary_dim - 1);
  f->low = fmax(f->p->truncate ? floor(low) : low, 0);
  f->high = fmin(f->p->truncate ? ceil(high) : high, last);
}

static double magnitude(double factor, double mscale)
{
  return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double attention_factor(const tg_rope_parameters *p)
{
  if (p->attention_factor != 0) {
    return p->attention_factor;
  }
  if (p->mscale != 0 && p->mscale_all_dim != 0) {
    return magnitude(p->factor, p->mscale) / magnitude(p->factor, p->mscale_all_dim);
  }
  return magnitude(p->factor, 1);
}

static frequencies prepare(const tg_rope_parameters *p)
{
  frequencies f = {.p = p, .base = (float)p->theta, .scale = 1};
  if (p->type == TG_ROPE_DYNAMIC) {
    f.base = dynamic_base(p);
  } else if (p->type == TG_ROPE_YARN) {
    yarn_bounds(&f);
    f.scale = (float)attention_factor(p);
  }
  return f;
}

/* ---- checks ---- */

enum { kLastPosition = 1 << 24 };

static tg_status fail(tg_error *error, tg_status status, const char *argument, const char *expected,
                      double got)
{
  return tgi_error_set(error, status, "rope_table: %s: expected %s, got %g", argument, expected,
                       got);
}

/* A number that some types need. */
typedef struct need {
  const char *name;
  unsigned types; /* bits */
  bool whole;     /* an int64_t, else a double */
  size_t offset;
} need;

#define BIT(type) (1u << (type))
#define NEED(field, whole, types)                                                                  \
  {                                                                                                \
#field, types, whole, offsetof(tg_rope_parameters, field)                                      \
  }

static const need needs[] = {
    NEED(factor, false,
         BIT(TG_ROPE_LINEAR) | BIT(TG_ROPE_DYNAMIC) | BIT(TG_ROPE_LLAMA3) | BIT(TG_ROPE_YARN)),
    NEED(max_position_embeddings, true, BIT(TG_ROPE_DYNAMIC)),
    NEED(original_max_position_embeddings, true, BIT(TG_ROPE_LLAMA3) | BIT(TG_ROPE_YARN)),
    NEED(low_freq_factor, false, BIT(TG_ROPE_LLAMA3)),
    NEED(beta_fast, false, BIT(TG_ROPE_YARN)),
    NEED(beta_slow, false, BIT(TG_ROPE_YARN)),
};

static tg_status check_positive(const tg_rope_parameters *p, tg_error *error)
{
  for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
    const void *field = (const char *)p + needs[i].offset;
    const double value = needs[i].whole ? (double)*(const int64_t *)field : *(const double *)field;
    if ((needs[i].types & BIT(p->type)) && !(isfinite(value) && value > 0)) {
      return fail(error, TG_BAD_ARGUMENT, needs[i].name, "a finite number > 0", value);
    }
  }
  return TG_OK;
}

static tg_status check_scaling(const tg_rope_parameters *p, tg_error *error)
{
  if (p->type == TG_ROPE_DYNAMIC && p->seq_len < 0) {
    return fail(error, TG_BAD_ARGUMENT, "seq_len", "a number >= 0", (double)p->seq_len);
  }
  if (p->type == TG_ROPE_LLAMA3 &&
      !(isfinite(p->high_freq_factor) && p->high_freq_factor > p->low_freq_factor)) {
    return fail(error, TG_BAD_ARGUMENT, "high_freq_factor", "a finite number > low_freq_factor",
                p->high_freq_factor);
  }
  if (p->type == TG_ROPE_YARN && !(isfinite(p->attention_factor) && p->attention_factor >= 0)) {
    return fail(error, TG_BAD_ARGUMENT, "attention_factor", "a finite number >= 0",
                p->attention_factor);
  }
  if (p->type == TG_ROPE_YARN && !isfinite(p->mscale)) {
    return fail(error, TG_BAD_ARGUMENT, "mscale", "a finite number", p->mscale);
  }
  if (p->type == TG_ROPE_YARN && !isfinite(p->mscale_all_dim)) {
    return fail(error, TG_BAD_ARGUMENT, "mscale_all_dim", "a finite number", p->mscale_all_dim);
  }
  return TG_OK;
}

static tg_status check_parameters(const tg_rope_parameters *p, tg_error *error)
{
  if (!p) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "rope_table: parameters: expected a pointer, got NULL");
  }
  if (p->type < TG_ROPE_DEFAULT || p->type > TG_ROPE_YARN) {
    return fail(error, TG_BAD_ARGUMENT, "type", "1 to 5", (double)p->type);
  }
  const int64_t least = p->type == TG_ROPE_DYNAMIC ? 4 : 2;
  if (p->rotary_dim < least || p->rotary_dim > INT32_MAX || p->rotary_dim % 2 != 0) {
    return fail(error, TG_BAD_ARGUMENT, "rotary_dim",
                least == 4 ? "an even number from 4 to 2^31" : "an even number from 2 to 2^31",
                (double)p->rotary_dim);
  }
  if (!(isfinite(p->theta) && p->theta > 1)) {
    return fail(error, TG_BAD_ARGUMENT, "theta", "a finite number > 1", p->theta);
  }
  const tg_status status = check_positive(p, error);
  return status == TG_OK ? check_scaling(p, error) : status;
}

static tg_status check_view(const tg_tensor *t, const char *name, int64_t rotary_dim,
                            tg_error *error)
{
  if (t->dtype != TG_F32 && t->dtype != TG_F16 && t->dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_DTYPE, "rope_table: %s: expected f32|f16|bf16, got %s", name,
                         tg_dtype_name(t->dtype));
  }
  if (t->ndim != 3 || t->shape[0] != 1 || t->shape[1] < 0 || t->shape[1] > kLastPosition + 1 ||
      (t->shape[2] != rotary_dim && t->shape[2] != rotary_dim / 2)) {
    return tgi_error_set(
        error, TG_BAD_SHAPE,
        "rope_table: %s: expected [1, seq, %lld or %lld] with seq <= 2^24 + 1, got rank %d, "
        "[%lld, %lld, %lld]",
        name, (long long)rotary_dim, (long long)(rotary_dim / 2), (int)t->ndim,
        (long long)t->shape[0], (long long)t->shape[1], (long long)t->shape[2]);
  }
  const int64_t row = tgi_stride(t, 1), width = t->shape[2];
  if ((width > 1 && tgi_stride(t, 2) != 1) ||
      (t->shape[1] > 1 && (row < width || row > INT64_MAX >> 28))) {
    return tgi_error_set(error, TG_BAD_SHAPE,
                         "rope_table: %s: expected rows apart and a contiguous last axis, got "
                         "strides [%lld, %lld, %lld]",
                         name, (long long)t->stride[0], (long long)t->stride[1],
                         (long long)t->stride[2]);
  }
  if (t->device != TG_DEVICE_CONTEXT && t->device != TG_DEVICE_CPU) {
    return fail(error, TG_BAD_ARGUMENT, name, "memory on device 0 or 1 (cpu)", t->device);
  }
  if (t->shape[1] > 0 && (!t->data || (uintptr_t)t->data % tg_dtype_bytes(t->dtype) != 0)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "rope_table: %s: expected %zu-byte aligned memory, got %p", name,
                         tg_dtype_bytes(t->dtype), t->data);
  }
  return TG_OK;
}

static bool overlap(const tg_tensor *a, const tg_tensor *b)
{
  const char *a0 = a->data, *b0 = b->data;
  return a0 && b0 && a0 < b0 + tgi_span_bytes(b) && b0 < a0 + tgi_span_bytes(a);
}

static tg_status check_views(const tg_tensor *cos, const tg_tensor *sin, int64_t rotary_dim,
                             tg_error *error)
{
  tg_status status = check_view(cos, "cos", rotary_dim, error);
  if (status == TG_OK) {
    status = check_view(sin, "sin", rotary_dim, error);
  }
  if (status == TG_OK && sin->dtype != cos->dtype) {
    return tgi_error_set(error, TG_BAD_DTYPE, "rope_table: sin: expected %s, got %s",
                         tg_dtype_name(cos->dtype), tg_dtype_name(sin->dtype));
  }
  if (status == TG_OK && memcmp(cos->shape, sin->shape, 3 * sizeof cos->shape[0]) != 0) {
    return tgi_error_set(error, TG_BAD_SHAPE,
                         "rope_table: sin: expected [1, %lld, %lld], got [1, %lld, %lld]",
                         (long long)cos->shape[1], (long long)cos->shape[2],
                         (long long)sin->shape[1], (long long)sin->shape[2]);
  }
  if (status == TG_OK && overlap(cos, sin)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "rope_table: sin: expected memory apart from cos, got an overlap");
  }
  return status;
}

static tg_status check(const tg_rope_parameters *p, tg_rope_pairing pairing, int64_t first,
                       const tg_tensor *cos, const tg_tensor *sin, tg_error *error)
{
  tg_status status = check_parameters(p, error);
  if (status == TG_OK && pairing != TG_ROPE_HALVES && pairing != TG_ROPE_INTERLEAVED) {
    return fail(error, TG_BAD_ARGUMENT, "pairing", "1 or 2", (double)pairing);
  }
  if (status == TG_OK) {
    status = check_views(cos, sin, p->rotary_dim, error);
  }
  if (status == TG_OK && (first < 0 || first > kLastPosition + 1 - cos->shape[1])) {
    return fail(error, TG_BAD_ARGUMENT, "first_position", "positions from 0 to 2^24",
                (double)first);
  }
  return status;
}

/* ---- the tables ---- */

/* One position of a pair: both elements have its values. */
static void write_pair(const tgi_rotation *r, int64_t t, int64_t pair, float cosine, float sine)
{
  const int64_t cos_row = t * tgi_stride(&r->cos, 1), sin_row = t * tgi_stride(&r->sin, 1);
  const int64_t first = r->wide ? tgi_first_of_pair(r, pair) : pair;
  const int64_t second = r->wide ? tgi_second_of_pair(r, pair) : pair;
  tgi_store(r->cos.data, r->cos.dtype, cos_row + first, (double)cosine);
  tgi_store(r->cos.data, r->cos.dtype, cos_row + second, (double)cosine);
  tgi_store(r->sin.data, r->sin.dtype, sin_row + first, (double)sine);
  tgi_store(r->sin.data, r->sin.dtype, sin_row + second, (double)sine);
}

static void write_tables(const frequencies *f, const tgi_rotation *r)
{
  for (int64_t pair = 0; pair < r->half; pair++) {
    const float inverse = inverse_frequency(f, pair);
    for (int64_t t = 0; t < r->cos.shape[1]; t++) {
      const float angle = (float)(r->offset + t) * inverse;
      write_pair(r, t, pair, (float)cos((double)angle) * f->scale,
                 (float)sin((double)angle) * f->scale);
    }
  }
}

tg_status tg_rope_table(const tg_rope_parameters *parameters, tg_rope_pairing pairing,
                        int64_t first_position, tg_tensor cos, tg_tensor sin, tg_error *error)
{
  const tg_status status = check(parameters, pairing, first_position, &cos, &sin, error);
  if (status != TG_OK) {
    return status;
  }
  const frequencies f = prepare(parameters);
  const tgi_rotation r =
      tgi_rotation_of(&cos, &sin, parameters->rotary_dim, first_position, pairing);
  write_tables(&f, &r);
  return tgi_error_set(error, TG_OK, "%s", "");
}
