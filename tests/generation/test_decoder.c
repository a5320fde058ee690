/* Decoders, on Hopper: a token by one kernel beside the same token by the graph of kernels, and ids
 * beside those picked from the logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "core/decoder_state.h"
#include "core/values/half.h"
#include "expect.h"
#include "generation/session_state.h"
#include "tegula/decoder.h"

#include <math.h>
#include <string.h>

enum { kVocab = 301, kLongest = 900 };

static tg_error error;

/* Widths that kernels are there for, with few layers and ids. */
static const char *const kGpt =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 301, \"n_layer\": 2, \"n_embd\": 768, "
    "\"n_head\": 12, \"n_positions\": 1024, \"n_inner\": 3072, "
    "\"activation_function\": \"gelu_new\", \"initializer_range\": 0.04}";
static const char *const kQwen =
    "{\"model_type\": \"qwen3\", \"vocab_size\": 301, \"num_hidden_layers\": 3, "
    "\"hidden_size\": 1024, \"num_attention_heads\": 16, \"num_key_value_heads\": 8, "
    "\"head_dim\": 128, \"intermediate_size\": 3072, \"max_position_embeddings\": 1024, "
    "\"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": true, \"initializer_range\": 0.04}";
static const char *const kLlama =
    "{\"model_type\": \"llama\", \"vocab_size\": 301, \"num_hidden_layers\": 2, "
    "\"hidden_size\": 2048, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
    "\"head_dim\": 64, \"intermediate_size\": 8192, \"max_position_embeddings\": 1024, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false, \"initializer_range\": 0.04}";

static tg_model *open_model(const char *config)
{
  tg_model *model = NULL;
  EXPECT_OK(tg_model_create_from(config, 3, &model, &error), error);
  for (int64_t i = 0; i < model->parameters.elements; i++) {
    tgi_store(model->block, TG_BF16, i, (double)((float *)model->block)[i]);
  }
  model->dtype = TG_BF16;
  return model;
}

static tg_session *open_session(const tg_model *model, bool one_kernel)
{
  tg_session *s = NULL;
  const tg_session_options o = {.max_tokens = kLongest, .backend = TG_BACKEND_CUDA};
  EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
  if (strncmp(tg_session_steps(s), "one kernel (", 12) != 0) {
    fail_msg("expected one kernel, got %s", tg_session_steps(s));
  }
  if (!one_kernel) {
    tg_decoder_destroy(s->ctx, s->decoder);
    s->decoder = NULL;
  }
  return s;
}

static int32_t id_at(int64_t i)
{
  return (int32_t)((uint64_t)(i + 1) * 2654435761U % kVocab);
}

static void feed(tg_session *s, int64_t count)
{
  int32_t ids[kLongest];
  const int64_t from = tg_session_length(s);
  for (int64_t i = 0; i < count; i++) {
    ids[i] = id_at(from + i);
  }
  EXPECT_OK(tg_session_feed(s, ids, count, &error), error);
}

/* The relative error of all logits: roundings of 16 bits, here and there. */
static double distance(const float *a, const float *b)
{
  double error_sum = 0, sum = 0;
  for (int i = 0; i < kVocab; i++) {
    error_sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    sum += (double)b[i] * b[i];
  }
  return sqrt(error_sum / sum);
}

/* Behind so many tokens, which both have by the same kernels, a few tokens one by one. */
static void check_logits(const tg_model *model, int64_t before)
{
  tg_session *one = open_session(model, true), *again = open_session(model, true);
  tg_session *graph = open_session(model, false);
  if (before > 0) {
    feed(one, before);
    feed(again, before);
    feed(graph, before);
  }
  for (int i = 0; i < 4; i++) {
    feed(one, 1);
    feed(again, 1);
    feed(graph, 1);
    const double d = distance(tg_session_logits(one), tg_session_logits(graph));
    if (!(d < 0.02)) {
      fail_msg("position %lld: expected logits within 0.02, got %g", (long long)before + i, d);
    }
    assert_memory_equal(tg_session_logits(one), tg_session_logits(again), kVocab * sizeof(float));
  }
  tg_session_destroy(one);
  tg_session_destroy(again);
  tg_session_destroy(graph);
}

typedef struct ids_told {
  int32_t ids[64];
  int count;
} ids_told;

static bool note_id(void *user, int32_t id)
{
  ids_told *t = user;
  t->ids[t->count++] = id;
  return true;
}

/* Generated ids are those that tg_sample_token picks from the logits of fed ones. */
static void check_ids(const tg_model *model, tg_sampling how)
{
  const tg_generate_options o = {.sampling = how, .max_new_tokens = 40};
  ids_told all = {.count = 0};
  tg_session *s = open_session(model, true), *fed = open_session(model, true);
  feed(s, 70);
  feed(fed, 70);
  EXPECT_OK(tg_session_generate(s, &o, note_id, &all, &error), error);
  assert_int_equal(all.count, 40);
  for (int i = 0; i < all.count; i++) {
    int32_t id;
    EXPECT_OK(tg_sample_token(tg_session_logits(fed), kVocab, &how,
                              (uint64_t)tg_session_length(fed), &id, &error),
              error);
    if (id != all.ids[i]) {
      fail_msg("token %d: expected %d, got %d", i, id, all.ids[i]);
    }
    EXPECT_OK(tg_session_feed(fed, &id, 1, &error), error);
  }
  tg_session_destroy(s);
  tg_session_destroy(fed);
}

static tg_status run_step(void *session)
{
  return tgi_session_step(session);
}

/* A graph would repeat the numbers of the words that blocks exchange. */
static void check_capture(const tg_model *model)
{
  tg_session *s = open_session(model, true);
  tg_graph *graph = NULL;
  feed(s, 3);
  assert_int_equal(tg_graph_record(s->ctx, run_step, s, &graph), TG_UNSUPPORTED);
  assert_non_null(strstr(tg_context_message(s->ctx), "expected a stream that is not captured"));
  assert_null(graph);
  feed(s, 1);
  tg_session_destroy(s);
}

static bool is_served(void)
{
  tg_device_info gpu;
  return tg_device_count() > 0 && tg_device_get_info(0, &gpu, NULL) == TG_OK &&
         strncmp(gpu.kernels, "sm90", 4) == 0;
}

static void check_family(const char *config)
{
  if (!is_served()) {
    skip();
  }
  tg_model *model = open_model(config);
  static const int64_t before[] = {0, 1, 60, 511, 800};
  for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
    check_logits(model, before[i]);
  }
  check_capture(model);
  check_ids(model, (tg_sampling){.temperature = 0});
  check_ids(model, (tg_sampling){.temperature = 0.9f, .top_k = 50, .seed = 9});
  tg_model_destroy(model);
}

static void test_gpt(void **state)
{
  (void)state;
  check_family(kGpt);
}

static void test_qwen(void **state)
{
  (void)state;
  check_family(kQwen);
}

static void test_llama(void **state)
{
  (void)state;
  check_family(kLlama);
}

/* Everywhere: a context of another device has no decoder, and says so. */
static void test_refusal(void **state)
{
  (void)state;
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 1};
  const tg_decoder_model m = {.layers = 1};
  tg_context *ctx = NULL;
  tg_decoder *d = NULL;
  EXPECT_OK(tg_context_create(&o, &ctx, &error), error);
  assert_int_equal(tg_decoder_create(ctx, &m, &d), TG_UNSUPPORTED);
  assert_null(d);
  assert_non_null(strstr(tg_context_message(ctx), "expected a GPU of compute capability 9.0"));
  assert_int_equal(tg_decoder_create(ctx, NULL, &d), TG_BAD_ARGUMENT);
  assert_int_equal(tg_decoder_run(ctx, NULL, NULL), TG_BAD_ARGUMENT);
  tg_decoder_destroy(ctx, NULL);
  assert_string_equal(tg_decoder_name(NULL), "");
  tg_context_destroy(ctx);
}

/* Everywhere: what a step must be is checked before the device is. */
static void test_steps(void **state)
{
  (void)state;
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 1};
  tg_decoder d = {.block_tokens = 16, .vocab = kVocab, .positions = 200, .rows = 100};
  static float logits[2 * kVocab];
  int32_t id = 0, table[8] = {0};
  tg_context *ctx = NULL;
  EXPECT_OK(tg_context_create(&o, &ctx, &error), error);
  const tg_decoder_step good = {.id = tg_tensor_1d(&id, TG_I32, 1),
                                .position = 99,
                                .block_table = tg_tensor_1d(table, TG_I32, 7),
                                .logits = tg_tensor_2d(logits, TG_F32, 1, kVocab),
                                .greedy = tg_tensor_1d(&id, TG_I32, 1)};
  tg_decoder_step step = good;
#define EXPECT_REFUSED(status, text)                                                               \
  assert_int_equal(tg_decoder_run(ctx, &d, &step), status);                                        \
  assert_non_null(strstr(tg_context_message(ctx), text));                                          \
  step = good
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "ctx: expected one of the decoder's GPU (cuda:0)");
  step.position = 100;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "position: expected 0 to 99");
  step.position = -1;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "got -1");
  d.rows = 300;
  step.position = 200;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "position: expected 0 to 199");
  step.block_table.shape[0] = 6;
  EXPECT_REFUSED(TG_BAD_SHAPE, "block_table: expected 7 elements, got 6");
  step.block_table.stride[0] = 2;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "block_table: expected contiguous memory");
  step.logits.stride[0] = step.logits.stride[1] = 2;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "logits: expected contiguous memory");
  step.logits.shape[1] = kVocab - 1;
  EXPECT_REFUSED(TG_BAD_SHAPE, "logits: expected 301 elements, got 300");
  step.id.data = NULL;
  EXPECT_REFUSED(TG_BAD_ARGUMENT, "id: expected memory, got NULL");
  step.greedy.dtype = TG_I64;
  EXPECT_REFUSED(TG_BAD_DTYPE, "greedy: expected i32, got i64");
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusal), cmocka_unit_test(test_steps),
                                     cmocka_unit_test(test_gpt), cmocka_unit_test(test_qwen),
                                     cmocka_unit_test(test_llama)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
