/* Engines on the CPU: every request beside the same request in a session of its own, bit for bit;
 * requests that are cancelled, refused, set back, or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "engine_requests.h"
#include "small_families.h"

enum { kRequests = 32, kLong = 1000 };

static tg_error error;

static tg_model *long_model(tg_dtype dtype)
{
  tg_model *model = generation_model("qwen3_nano", dtype);
  model->config.max_position_embeddings = kLong;
  return model;
}

static tg_engine *open_engine(const tg_model *model, tg_engine_options o)
{
  tg_engine *e = NULL;
  EXPECT_OK(tg_engine_create(model, &o, &e, &error), error);
  return e;
}

/* ---- beside single runs ---- */

typedef struct company {
  tg_engine_options engine;
  int64_t most_prompt;
  uint64_t seed;
} company;

/* Requests that come while others run; the logits of one are of no other. */
static tg_engine_info check_company(const tg_model *model, company c)
{
  asked *together = calloc(kRequests, sizeof *together), *alone = calloc(kRequests, sizeof *alone);
  uint64_t state = c.seed;
  tg_engine *e = open_engine(model, c.engine);
  const tg_session_options session = {.max_tokens = (int32_t)tg_engine_get_info(e).max_tokens,
                                      .num_threads = 2,
                                      .cache_dtype = c.engine.cache_dtype};
  size_t sent = 0;
  for (int64_t left = 0; sent < kRequests || left > 0;) {
    for (int64_t some = random_below(&state, 3); some > 0 && sent < kRequests; some--) {
      make_asked(&together[sent], &state, c.most_prompt);
      alone[sent] = together[sent];
      submit(e, &together[sent++]);
    }
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
  }
  expect_idle(e);
  for (size_t i = 0; i < kRequests; i++) {
    ask_alone(model, &alone[i], &session);
    expect_same(&together[i], &alone[i], i);
  }
  const tg_engine_info info = tg_engine_get_info(e);
  tg_engine_destroy(e);
  free(together);
  free(alone);
  return info;
}

static void alone_or_in_company(void **state)
{
  (void)state;
  static const tg_dtype dtypes[] = {TG_F32, TG_BF16};
  for (size_t d = 0; d < 2; d++) {
    for (int32_t threads = 1; threads < 4; threads += 2) {
      tg_model *gpt = generation_model("gpt_nano", dtypes[d]), *qwen = long_model(dtypes[d]);
      const tg_engine_options wide = {.batch = 32, .num_threads = threads};
      const tg_engine_options few = {.batch = 5, .num_threads = threads};
      check_company(gpt, (company){wide, 100, 1});
      const tg_engine_info info = check_company(qwen, (company){wide, 700, 2});
      assert_true(info.shared_tokens > 0 && info.shared_tokens % 256 == 0);
      assert_int_equal(info.set_back, 0);
      check_company(qwen, (company){few, 300, 3});
      tg_model_destroy(gpt);
      tg_model_destroy(qwen);
    }
  }
}

static void of_any_cache(void **state)
{
  (void)state;
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  tg_model *model = long_model(TG_F32);
  for (size_t i = 0; i < 3; i++) {
    check_company(model, (company){{.batch = 8, .cache_dtype = dtypes[i]}, 300, 10 + i});
  }
  tg_model_destroy(model);
}

/* A pool for a tenth of what the requests want: they lose their blocks and begin again. */
static void out_of_blocks(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  const tg_engine_options o = {.batch = 16, .max_tokens = 760, .cache_tokens = 768};
  tg_engine_info info = check_company(model, (company){o, 300, 20});
  assert_true(info.set_back > 0);
  const tg_engine_options small = {.batch = 16, .max_tokens = 256, .cache_tokens = 256};
  info = check_company(model, (company){small, 60, 21});
  assert_true(info.set_back > 0);
  /* The last token of a sequence that has all that it may have does not fit. */
  const tg_engine_options tight = {.batch = 4, .max_tokens = 70, .cache_tokens = 70};
  check_company(model, (company){tight, 70, 22});
  tg_model_destroy(model);
}

/* So many heads that attention splits the keys of a token by the sequence's extent. */
static void of_many_heads(void **state)
{
  (void)state;
  tgi_config config = family_config(TGI_MODEL_LLAMA);
  config.vocab_size = kIds;
  config.max_position_embeddings = kLong;
  config.num_attention_heads = config.num_key_value_heads = 16;
  tg_model *model = model_of(config);
  check_company(model, (company){{.batch = 16}, 700, 50});
  tg_model_destroy(model);
}

/* Every family: windows, sinks, and experts, of which rows share others in every step. */
static void of_every_family(void **state)
{
  (void)state;
  for (size_t f = 0; f < sizeof kEveryFamily / sizeof kEveryFamily[0]; f++) {
    tgi_config config = family_config(kEveryFamily[f]);
    config.vocab_size = kIds;
    config.max_position_embeddings = 400;
    tg_model *model = model_of(config);
    check_company(model, (company){{.batch = 16}, 300, 30 + f});
    check_company(model, (company){{.batch = 16, .cache_dtype = TG_BF16}, 100, 40 + f});
    tg_model_destroy(model);
  }
}

/* ---- pieces and sharing ---- */

/* Tokens do not depend on what is found in the pool; pieces of any size do the same with their own
 * kind. */
static void sharing_changes_no_bit(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  for (int32_t piece = 64; piece <= 256; piece *= 2) {
    asked first = {.count = 600, .how = {.max_new_tokens = 20}, .logprobs = {.num_top = 1}};
    for (int i = 0; i < 600; i++) {
      first.ids[i] = (i * 31 + i / 7) % kIds;
    }
    first.how.sampling = (tg_sampling){.temperature = 1, .seed = 4};
    asked again = first, whole = first, longer = first;
    longer.count = 650;
    asked longer_whole = longer;
    tg_engine *shares = open_engine(model, (tg_engine_options){.piece_tokens = piece});
    tg_engine *not =
        open_engine(model, (tg_engine_options){.piece_tokens = piece, .no_sharing = true});
    submit(shares, &first);
    run_to_end(shares);
    assert_int_equal(tg_engine_get_info(shares).shared_tokens, 0);
    assert_int_equal(tg_engine_get_info(shares).shared_blocks, 600 / piece * piece / 64);
    submit(shares, &again);
    run_to_end(shares);
    const int64_t found = tg_engine_get_info(shares).shared_tokens;
    assert_int_equal(found, 600 / piece * piece);
    assert_int_equal(tg_engine_get_info(shares).prompt_tokens, 600 + 600 - found);
    submit(shares, &longer);
    run_to_end(shares);
    submit(not, &whole);
    submit(not, &longer_whole);
    run_to_end(not );
    assert_int_equal(tg_engine_get_info(not ).shared_tokens, 0);
    assert_int_equal(tg_engine_get_info(not ).prompt_tokens, 1250);
    assert_int_equal(tg_engine_get_info(not ).free_blocks, tg_engine_get_info(not ).blocks);
    expect_same(&first, &whole, 0);
    expect_same(&again, &whole, 1);
    expect_same(&longer, &longer_whole, 2);
    tg_engine_destroy(shares);
    tg_engine_destroy(not );
  }
  tg_model_destroy(model);
}

/* A prompt that consists of whole pieces: the last one is computed all the same. */
static void whole_pieces(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  asked a = {.count = 256, .how = {.max_new_tokens = 5}, .logprobs = {.num_top = -1}};
  asked b = a;
  tg_engine *e = open_engine(model, (tg_engine_options){.piece_tokens = 64});
  submit(e, &a);
  run_to_end(e);
  submit(e, &b);
  run_to_end(e);
  assert_int_equal(tg_engine_get_info(e).shared_tokens, 192);
  expect_same(&b, &a, 0);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

/* ---- ends ---- */

static void cancelling(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  tg_engine *e = open_engine(model, (tg_engine_options){.batch = 2, .no_sharing = true});
  asked a[4];
  int64_t left;
  for (int i = 0; i < 4; i++) {
    a[i] = (asked){.count = 300, .how = {.max_new_tokens = 40}, .logprobs = {.num_top = -1}};
    submit(e, &a[i]);
  }
  EXPECT_OK(tg_engine_step(e, &left, &error), error); /* 0 in its prompt; 1 to 3 wait */
  assert_int_equal(tg_engine_get_info(e).running, 1);
  EXPECT_OK(tg_engine_cancel(e, a[0].number), error);
  EXPECT_OK(tg_engine_cancel(e, a[3].number), error);
  assert_int_equal(a[0].ends, 0);
  EXPECT_OK(tg_engine_step(e, &left, &error), error);
  assert_int_equal(a[0].finish, TG_FINISH_CANCELLED);
  assert_int_equal(a[3].finish, TG_FINISH_CANCELLED);
  assert_int_equal(left, 2);
  const tg_engine_info info = tg_engine_get_info(e);
  assert_int_equal(info.blocks - info.free_blocks, 256 / 64); /* request 1's first piece */
  while (a[1].num_got < 3) {
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
  }
  EXPECT_OK(tg_engine_cancel(e, a[1].number), error);
  EXPECT_OK(tg_engine_step(e, &left, &error), error);
  assert_int_equal(a[1].finish, TG_FINISH_CANCELLED);
  assert_int_equal(a[1].num_got, 3);
  run_to_end(e);
  assert_int_equal(a[2].finish, TG_FINISH_LENGTH);
  assert_int_equal(a[2].num_got, 40);
  assert_int_equal(tg_engine_cancel(e, a[2].number), TG_BAD_ARGUMENT);
  assert_int_equal(tg_engine_cancel(e, 5), TG_BAD_ARGUMENT);
  assert_int_equal(tg_engine_cancel(e, 0), TG_BAD_ARGUMENT);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

/* A request from whose logits nothing can be picked fails, and the one beside it goes on. */
static void bad_logits(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  asked good = {.count = 5, .how = {.max_new_tokens = 20}, .logprobs = {.num_top = -1}}, bad = good;
  tg_logit_bias nothing[kIds];
  for (int32_t i = 0; i < kIds; i++) {
    nothing[i] = (tg_logit_bias){i, -INFINITY};
  }
  bad.how.sampling.logit_bias = nothing;
  bad.how.sampling.num_logit_bias = kIds;
  asked alone = good;
  ask_alone(model, &alone, &(tg_session_options){.num_threads = 2});
  tg_engine *e = open_engine(model, (tg_engine_options){.batch = 4});
  submit(e, &bad);
  submit(e, &good);
  run_to_end(e);
  assert_int_equal(bad.finish, TG_FINISH_FAILED);
  assert_int_equal(bad.error.status, TG_BAD_ARGUMENT);
  assert_non_null(strstr(bad.error.text, "request 1: logits: expected finite ones for position 5"));
  expect_same(&good, &alone, 1);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

typedef struct chain {
  tg_engine *e;
  asked *next, *victim;
  asked self;
} chain;

static bool submit_another(void *user, const tg_event *event)
{
  chain *c = user;
  c->self.number = event->request;
  if (event->finish != TG_FINISH_NONE) {
    c->self.ends++;
    submit(c->e, c->next);
  } else if (c->self.num_got++ == 3) {
    EXPECT_OK(tg_engine_cancel(c->e, c->victim->number), error);
    EXPECT_OK(tg_engine_cancel(c->e, event->request), error);
  }
  return true;
}

/* A callback cancels others and itself, and submits. */
static void inside_callbacks(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  tg_engine *e = open_engine(model, (tg_engine_options){.batch = 4});
  asked next = {.count = 3, .how = {.max_new_tokens = 6}, .logprobs = {.num_top = -1}};
  asked victim = {.count = 4, .how = {.max_new_tokens = 40}, .logprobs = {.num_top = -1}};
  chain c = {.e = e, .next = &next, .victim = &victim};
  int64_t number;
  submit(e, &victim);
  const tg_request r = {.ids = next.ids, .count = 3, .on_event = submit_another, .user = &c};
  EXPECT_OK(tg_engine_submit(e, &r, &number, &error), error);
  run_to_end(e);
  assert_int_equal(victim.finish, TG_FINISH_CANCELLED);
  assert_int_equal(c.self.ends, 1);
  assert_int_equal(next.ends, 1);
  assert_int_equal(next.num_got, 6);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

/* ---- refusals ---- */

static void refused_requests(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  tg_engine *e = open_engine(model, (tg_engine_options){.max_tokens = 10, .cache_tokens = 64});
  static const tg_logit_bias far[] = {{kIds, 1}};
  int32_t ids[11] = {0};
  int64_t number = 0;
  asked a = {.count = 0};
  const tg_request good = {.ids = ids, .count = 3, .on_event = note_event, .user = &a};
  tg_token_logprobs top = {.num_top = 21};
#define REFUSED(text, ...)                                                                         \
  do {                                                                                             \
    tg_request r = good;                                                                           \
    __VA_ARGS__;                                                                                   \
    EXPECT_ERROR(tg_engine_submit(e, &r, &number, &error), TG_BAD_ARGUMENT, text, error);          \
  } while (0)
  REFUSED("ids: expected 1 to 10 tokens, got 11", r.count = 11);
  REFUSED("ids: expected 1 to 10 tokens, got 0", r.count = 0);
  REFUSED("ids: expected 1 to 10 tokens, got 0", r.ids = NULL);
  REFUSED("expected pointers, got NULL", r.on_event = NULL);
  REFUSED("max_new_tokens: expected 0 or more, got -1", r.how.max_new_tokens = -1);
  REFUSED("stop_ids: expected 2 ids, got NULL", r.how.num_stop_ids = 2);
  REFUSED("num_top: expected 0 to 20, got 21", r.how.logprobs = &top);
  REFUSED("temperature: expected a finite number >= 0, got -1", r.how.sampling.temperature = -1);
  REFUSED("top_p: expected 0 to 1, got 2", r.how.sampling.top_p = 2);
  REFUSED("presence_penalty: expected a finite number", r.how.sampling.presence_penalty = NAN);
  REFUSED("logit_bias[0].id: expected 0 to 256, got 257", r.how.sampling.logit_bias = far,
          r.how.sampling.num_logit_bias = 1);
  ids[1] = kIds;
  REFUSED("ids[1]: expected 0 to 256, got 257", (void)r);
#undef REFUSED
  assert_int_equal(number, 0);
  expect_idle(e);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

static void refused_options(void **state)
{
  (void)state;
  static const struct {
    tg_engine_options o;
    const char *text;
  } cases[] = {{{.batch = 65}, "engine_create: batch: expected 0 to 64, got 65"},
               {{.batch = -1}, "batch: expected 0 to 64, got -1"},
               {{.max_tokens = 1001}, "max_tokens: expected 0 to 1000, got 1001"},
               {{.cache_tokens = -1}, "cache_tokens: expected 0 to 2147483583, got -1"},
               {{.max_tokens = 65, .cache_tokens = 64},
                "max_tokens: expected at most the pool's 64, got 65"},
               {{.piece_tokens = 32}, "piece_tokens: expected 0, 64, 128 or 256, got 32"},
               {{.cache_dtype = TG_I32}, "cache_dtype: expected f32|f16|bf16, got i32"}};
  tg_model *model = long_model(TG_F32);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tg_engine *e = NULL;
    EXPECT_ERROR(tg_engine_create(model, &cases[i].o, &e, &error), TG_BAD_ARGUMENT, cases[i].text,
                 error);
    assert_null(e);
  }
  assert_int_equal(tg_engine_step(NULL, NULL, &error), TG_BAD_ARGUMENT);
  assert_int_equal(tg_engine_cancel(NULL, 1), TG_BAD_ARGUMENT);
  assert_int_equal(tg_engine_get_info(NULL).blocks, 0);
  tg_engine_destroy(NULL);
  tg_model_destroy(model);
}

static void no_block_leaks(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_engine_options o = kOfMany;
  o.num_threads = 1;
  tg_engine *e = open_engine(model, o);
  assert_true(run_many(e, 10000) > 100);
  const tg_engine_info info = tg_engine_get_info(e);
  assert_true(info.set_back > 50);
  assert_true(info.shared_tokens > 1000);
  tg_engine_destroy(e);
  tg_model_destroy(model);
}

/* Requests are left: they are freed, and not told. */
static void destroyed_at_work(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  tg_engine *e = open_engine(model, (tg_engine_options){.batch = 2});
  asked a[4];
  for (int i = 0; i < 4; i++) {
    a[i] = (asked){.count = 300, .how = {.max_new_tokens = 40}, .logprobs = {.num_top = -1}};
    submit(e, &a[i]);
  }
  EXPECT_OK(tg_engine_step(e, NULL, &error), error);
  tg_engine_destroy(e);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(a[i].ends, 0);
  }
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone_or_in_company), cmocka_unit_test(of_any_cache),
      cmocka_unit_test(out_of_blocks),       cmocka_unit_test(of_every_family),
      cmocka_unit_test(of_many_heads),       cmocka_unit_test(sharing_changes_no_bit),
      cmocka_unit_test(whole_pieces),        cmocka_unit_test(cancelling),
      cmocka_unit_test(bad_logits),          cmocka_unit_test(inside_callbacks),
      cmocka_unit_test(refused_requests),    cmocka_unit_test(refused_options),
      cmocka_unit_test(no_block_leaks),      cmocka_unit_test(destroyed_at_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
