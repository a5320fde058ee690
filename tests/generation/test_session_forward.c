/* tg_session_forward: logits of whole texts, beside those that a timeline gives token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "generation.h"
#include <stdio.h>

static tg_error error;

static tg_session *open_session(const tg_model *model)
{
  tg_session *s = NULL;
  EXPECT_OK(tg_session_create(model, &(tg_session_options){.num_threads = 2}, &s, &error), error);
  return s;
}

static void fill_ids(int32_t *ids, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    ids[i] = (int32_t)((i * 7919 + i / 13) % kIds);
  }
}

static float *forward(tg_session *s, const int32_t *ids, int64_t batch, int64_t seq, uint32_t flags)
{
  const int64_t rows = flags & TG_FORWARD_LAST ? batch : batch * seq;
  float *logits = malloc((size_t)(rows * kIds) * sizeof *logits);
  assert_non_null(logits);
  for (int64_t i = 0; i < rows * kIds; i++) {
    logits[i] = NAN;
  }
  EXPECT_OK(tg_session_forward(s, ids, batch, seq, flags, tg_tensor_2d(logits, TG_F32, rows, kIds),
                               &error),
            error);
  return logits;
}

static void expect_near(const float *got, const float *want, int64_t count, double bound)
{
  double most = 0, worst = 0;
  for (int64_t i = 0; i < count; i++) {
    most = fmax(most, fabs((double)want[i]));
    worst = isnan(got[i]) ? INFINITY : fmax(worst, fabs((double)got[i] - (double)want[i]));
  }
  if (!(worst <= bound * most)) {
    fail_msg("expected logits within %g of %g, got a difference of %g", bound, most, worst);
  }
}

static void logits_are_those_of_the_timeline(void **state)
{
  (void)state;
  enum { seq = 9 };
  static const tg_dtype dtypes[] = {TG_F32, TG_BF16};
  int32_t ids[seq];
  fill_ids(ids, seq);
  for (size_t f = 0; f < 2; f++) {
    for (size_t d = 0; d < 2; d++) {
      tg_model *model = generation_model(kFamilies[f], dtypes[d]);
      tg_session *s = open_session(model), *timeline = open_session(model);
      float *logits = forward(s, ids, 1, seq, 0);
      for (int64_t t = 0; t < seq; t++) {
        EXPECT_OK(tg_session_feed(timeline, ids + t, 1, &error), error);
        expect_near(logits + t * kIds, tg_session_logits(timeline), kIds,
                    dtypes[d] == TG_F32 ? 1e-5 : 2e-2);
      }
      free(logits);
      tg_session_destroy(timeline);
      tg_session_destroy(s);
      tg_model_destroy(model);
    }
  }
}

/* 60 rows of 40 tokens are two passes. */
static void rows_are_texts_of_their_own(void **state)
{
  (void)state;
  enum { batch = 60, seq = 40 };
  int32_t ids[batch * seq];
  fill_ids(ids, batch * seq);
  for (size_t f = 0; f < 2; f++) {
    tg_model *model = generation_model(kFamilies[f], TG_F32);
    tg_session *s = open_session(model), *alone = open_session(model);
    float *all = forward(s, ids, batch, seq, 0), *last = forward(s, ids, batch, seq, 1);
    for (int64_t b = 0; b < batch; b += 7) {
      float *row = forward(alone, ids + b * seq, 1, seq, 0);
      expect_near(all + b * seq * kIds, row, seq * kIds, 2e-6);
      free(row);
    }
    for (int64_t b = 0; b < batch; b++) {
      expect_near(last + b * kIds, all + (b * seq + seq - 1) * kIds, kIds, 2e-6);
    }
    free(last);
    free(all);
    tg_session_destroy(alone);
    tg_session_destroy(s);
    tg_model_destroy(model);
  }
}

static void the_timeline_stays(void **state)
{
  (void)state;
  tg_model *model = generation_model("qwen3_nano", TG_F32);
  tg_session *s = open_session(model), *other = open_session(model);
  int32_t ids[30];
  fill_ids(ids, 30);
  feed_prompt(s);
  feed_prompt(other);
  const float *before = tg_session_logits(s);
  float *first = forward(s, ids, 1, 30, 0), *second = forward(s, ids, 2, 15, 0);
  float *again = forward(s, ids, 1, 30, 0);
  assert_memory_equal(first, again, 30 * kIds * sizeof *first);
  assert_ptr_equal(tg_session_logits(s), before);
  assert_memory_equal(before, tg_session_logits(other), kIds * sizeof *before);
  assert_int_equal(tg_session_length(s), kPrompt);
  EXPECT_OK(tg_session_feed(s, ids, 3, &error), error);
  EXPECT_OK(tg_session_feed(other, ids, 3, &error), error);
  assert_memory_equal(tg_session_logits(s), tg_session_logits(other), kIds * sizeof *before);
  free(again);
  free(second);
  free(first);
  tg_session_destroy(other);
  tg_session_destroy(s);
  tg_model_destroy(model);
}

/* Logits in the dtype of the weights are those in f32, rounded. */
static void logits_in_16_bits(void **state)
{
  (void)state;
  enum { count = 12 * kIds };
  static const tg_dtype dtypes[] = {TG_BF16, TG_F16};
  static uint16_t rounded[count], want[count];
  int32_t ids[12];
  fill_ids(ids, 12);
  for (size_t d = 0; d < 2; d++) {
    tg_model *model = generation_model("gpt_nano", dtypes[d]);
    tg_session *s = open_session(model);
    float *wide = forward(s, ids, 2, 6, 0);
    const tg_tensor from = tg_tensor_2d(wide, TG_F32, 12, kIds);
    EXPECT_OK(
        tg_session_forward(s, ids, 2, 6, 0, tg_tensor_2d(rounded, dtypes[d], 12, kIds), &error),
        error);
    assert_int_equal(tg_memory_convert(s->ctx, tg_tensor_2d(want, dtypes[d], 12, kIds), from),
                     TG_OK);
    assert_memory_equal(rounded, want, sizeof want);
    EXPECT_ERROR(
        tg_session_forward(s, ids, 2, 6, 0, tg_tensor_2d(rounded, dtypes[1 - d], 12, kIds), &error),
        TG_BAD_DTYPE, d == 0 ? "expected f32 or bf16, got f16" : "or f16, got bf16", error);
    free(wide);
    tg_session_destroy(s);
    tg_model_destroy(model);
  }
}

typedef struct heard_parts {
  char text[4096];
  int depth;
} heard_parts;

static void note(heard_parts *t, const char *word)
{
  strncat(t->text, word, sizeof t->text - strlen(t->text) - 1);
}

static void begin_part(void *user, const char *part)
{
  heard_parts *t = user;
  t->depth++;
  note(t, part);
  note(t, "(");
}

static void end_part(void *user)
{
  heard_parts *t = user;
  t->depth--;
  note(t, ")");
}

static tg_status run_op(void *user, tg_context *ctx, const tg_op_info *op, const void *args)
{
  note(user, op->op);
  note(user, " ");
  return op->run(ctx, args);
}

static void feed_heard(tg_session *s, heard_parts *heard, int64_t count, const char *want)
{
  int32_t ids[12];
  fill_ids(ids, 12);
  heard->text[0] = '\0';
  EXPECT_OK(tg_session_feed(s, ids, count, &error), error);
  assert_int_equal(heard->depth, 0);
  assert_string_equal(heard->text, want);
}

/* A watch hears every part and op in their order, and changes no bit. */
static void a_pass_is_watched(void **state)
{
  (void)state;
  heard_parts heard = {.depth = 0};
  const tgi_pass_watch watch = {&heard, begin_part, end_part, run_op};
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_session *s = open_session(model);
  int32_t ids[12];
  fill_ids(ids, 12);
  float *plain = forward(s, ids, 2, 6, 0);
  s->watch = &watch;
  float *watched = forward(s, ids, 2, 6, 0);
  assert_memory_equal(plain, watched, 12 * kIds * sizeof *plain);
  assert_int_equal(heard.depth, 0);
  const char *layer = "(layer_norm linear attention linear layer_norm linear linear )";
  char want[1024];
  snprintf(want, sizeof want, "pass(embedding layer 0%slayer 1%slayer 2%slayer_norm head(linear ))",
           layer, layer, layer);
  assert_string_equal(heard.text, want);
  for (int place = 0; place < 2; place++) {
    s->by_place = place;
    feed_heard(s, &heard, 5, want);
    feed_heard(s, &heard, 1, want);
  }
  free(watched);
  free(plain);
  tg_session_destroy(s);
  tg_model_destroy(model);
}

static void wrong_calls_are_refused(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_session *s = open_session(model);
  static float memory[200 * kIds];
  int32_t ids[200];
  fill_ids(ids, 200);
  tg_tensor logits = tg_tensor_2d(memory, TG_F32, 6, kIds);
#define EXPECT_REFUSAL(batch, seq, flags, status, text)                                            \
  EXPECT_ERROR(tg_session_forward(s, ids, batch, seq, flags, logits, &error), status, text, error)
  EXPECT_REFUSAL(0, 6, 0, TG_BAD_ARGUMENT, "expected rows of 1 to 128 tokens");
  EXPECT_REFUSAL(1, 0, 0, TG_BAD_ARGUMENT, "got 1 rows of 0");
  EXPECT_REFUSAL(1, 129, 0, TG_BAD_ARGUMENT, "got 1 rows of 129");
  EXPECT_REFUSAL(2, 3, 2, TG_BAD_ARGUMENT, "flags: expected 0 or 1, got 2");
  EXPECT_REFUSAL(2, 4, 0, TG_BAD_SHAPE, "expected [8, 257], got rank 2 [6, 257]");
  EXPECT_REFUSAL(2, 3, 1, TG_BAD_SHAPE, "expected [2, 257], got rank 2 [6, 257]");
  logits.stride[0] = 2 * kIds;
  logits.stride[1] = 1;
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_ARGUMENT, "expected contiguous memory, got strides");
  logits = tg_tensor_2d(NULL, TG_F32, 6, kIds);
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_ARGUMENT, "got NULL");
  logits = tg_tensor_2d(memory, TG_BF16, 6, kIds);
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_DTYPE, "expected f32, got bf16");
  logits = tg_tensor_2d(memory, TG_F32, 6, kIds);
  logits.device = TG_DEVICE_CUDA(0);
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_ARGUMENT, "got cuda:0");
  logits.device = 0;
  ids[4] = kIds;
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_ARGUMENT, "ids[1, 1]: expected 0 to 256, got 257");
  ids[4] = -1;
  EXPECT_REFUSAL(2, 3, 0, TG_BAD_ARGUMENT, "got -1");
  ids[4] = 0;
  EXPECT_OK(tg_session_forward(s, ids, 2, 3, 0, logits, &error), error);
  assert_int_equal(tg_session_forward(NULL, ids, 2, 3, 0, logits, NULL), TG_BAD_ARGUMENT);
  tg_session_destroy(s);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logits_are_those_of_the_timeline),
      cmocka_unit_test(rows_are_texts_of_their_own),
      cmocka_unit_test(the_timeline_stays),
      cmocka_unit_test(logits_in_16_bits),
      cmocka_unit_test(a_pass_is_watched),
      cmocka_unit_test(wrong_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
