/* The cache of a session on the CPU: it grows, it may have a dtype of its own, and its size follows
 * the free memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "generation.h"
#include "generation/free_memory.h"
#include "scratch_directory.h"
#include <stdio.h>
#include <sys/stat.h>

static tg_error error;

enum { kLong = 1000 };

/* Qwen3's positions are no parameters: there may be as many as a test needs. */
static tg_model *long_model(tg_dtype dtype)
{
  tg_model *model = generation_model("qwen3_nano", dtype);
  model->config.max_position_embeddings = kLong;
  return model;
}

static tg_session *open_session(const tg_model *model, tg_session_options o)
{
  tg_session *s = NULL;
  o.num_threads = 2;
  EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
  return s;
}

static int32_t id_at(int64_t i)
{
  return (int32_t)((i * 7919 + i / 13) % kIds);
}

static void feed(tg_session *s, int64_t count)
{
  int32_t ids[kLong];
  for (int64_t i = 0; i < count; i++) {
    ids[i] = id_at(tg_session_length(s) + i);
  }
  EXPECT_OK(tg_session_feed(s, ids, count, &error), error);
}

static void growing_changes_no_bit(void **state)
{
  (void)state;
  /* Within the first room, over its end in one token and in many, to the end. */
  static const int64_t pieces[] = {200, 56, 1, 1, 130, 1, 300, 1, 309, 1};
  tg_model *model = long_model(TG_F32);
  tg_session *grows = open_session(model, (tg_session_options){.max_tokens = kLong});
  tg_session *whole = open_session(model, (tg_session_options){.max_tokens = kLong});
  EXPECT_OK(tgi_session_reserve(whole, kLong, &error), error);
  const int64_t all = tg_session_cache_bytes(whole);
  assert_int_equal(all, (int64_t)kLong * (2 * 4 * 64 * 4 + 32 * 4)); /* 4 layers, 2 heads of 32 */
  assert_int_equal(tg_session_cache_bytes(grows), all / kLong * 256);
  int64_t last = 0;
  for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
    feed(grows, pieces[i]);
    feed(whole, pieces[i]);
    assert_memory_equal(tg_session_logits(grows), tg_session_logits(whole), kIds * sizeof(float));
    assert_true(grows->room >= tg_session_length(grows) && grows->room >= last);
    last = grows->room;
  }
  assert_int_equal(tg_session_length(grows), kLong);
  assert_int_equal(grows->room, kLong);
  assert_int_equal(tg_session_cache_bytes(grows), all);
  assert_int_equal(tg_session_truncate(grows, 10), TG_OK);
  assert_int_equal(tg_session_cache_bytes(grows), all);
  tg_session_destroy(grows);
  tg_session_destroy(whole);
  tg_model_destroy(model);
}

/* Sizing cannot foresee every pass: one that needs more than there is takes it. */
static void workspace_grows(void **state)
{
  (void)state;
  static const int64_t pieces[] = {200, 1, 1, 130, 1};
  tg_model *model = long_model(TG_F32);
  for (int place = 0; place < 2; place++) {
    tg_session *grows = open_session(model, (tg_session_options){.max_tokens = kLong});
    tg_session *whole = open_session(model, (tg_session_options){.max_tokens = kLong});
    grows->by_place = whole->by_place = place;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
      tg_memory_free(grows->ctx, grows->workspace);
      grows->workspace = NULL;
      grows->workspace_bytes = 0;
      feed(grows, pieces[i]);
      feed(whole, pieces[i]);
      assert_true(grows->workspace_bytes <= whole->workspace_bytes);
      assert_true(pieces[i] == 1 || grows->workspace_bytes > 0);
      assert_memory_equal(tg_session_logits(grows), tg_session_logits(whole), kIds * sizeof(float));
    }
    tg_session_destroy(grows);
    tg_session_destroy(whole);
  }
  tg_model_destroy(model);
}

static void generating_grows_too(void **state)
{
  (void)state;
  tg_model *model = long_model(TG_F32);
  const tg_generate_options o = {.sampling = kSampled, .max_new_tokens = 120};
  told want = {.count = 0};
  for (int ahead = 0; ahead < 3; ahead++) {
    tg_session *s = open_session(model, (tg_session_options){.max_tokens = kLong});
    s->by_place = ahead > 0;
    s->ahead = ahead > 1;
    s->least_extent = 16;
    feed(s, 250);
    assert_int_equal(s->room, 256);
    const told got = generate_tokens(s, &o, 0);
    assert_true(s->room > 256);
    want = ahead == 0 ? got : want;
    expect_tokens(&got, want.ids, 120);
    tg_session_destroy(s);
  }
  tg_model_destroy(model);
}

/* max|a - b| / max|b| of the logits. */
static double distance(const tg_session *a, const tg_session *b)
{
  const float *x = tg_session_logits(a), *y = tg_session_logits(b);
  double most = 0, worst = 0;
  for (int i = 0; i < kIds; i++) {
    worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    most = fmax(most, fabs((double)y[i]));
  }
  return worst / most;
}

/* With start values: generation_model's scale norms of queries and keys too, and would make a score
 * of every rounding error's sixteenfold. */
static tg_model *start_model(const char *preset, tg_dtype dtype)
{
  tg_model *model = NULL;
  EXPECT_OK(tg_model_create(preset, kIds, 11, &model, &error), error);
  for (int64_t i = 0; i < model->parameters.elements; i++) { /* forwards, in place */
    tgi_store(model->block, dtype, i, ((float *)model->block)[i]);
  }
  model->dtype = dtype;
  return model;
}

static void check_cache_dtype(const char *preset, tg_dtype weights, tg_dtype cache, double bound,
                              generation_form form)
{
  tg_model *model = start_model(preset, weights);
  tg_session *narrow =
      open_session(model, (tg_session_options){.max_tokens = kRoom, .cache_dtype = cache});
  tg_session *plain = open_session(model, (tg_session_options){.max_tokens = kRoom});
  narrow->by_place = form.by_place;
  narrow->least_extent = 16;
  assert_true(tg_session_cache_bytes(narrow) != tg_session_cache_bytes(plain) ||
              tg_dtype_bytes(weights) == tg_dtype_bytes(cache));
  double worst = 0;
  for (int64_t i = 0; i < 40; i++) {
    feed(narrow, i == 0 ? 30 : 1);
    feed(plain, i == 0 ? 30 : 1);
    worst = fmax(worst, distance(narrow, plain));
  }
  /* What fits in the cache exactly may be computed alike. */
  const bool narrower = tg_dtype_bytes(cache) < tg_dtype_bytes(weights);
  if (!(worst <= bound && (worst > 0 || !narrower))) {
    fail_msg("%s in %s, cache in %s: expected a difference of the logits up to %g, got %g", preset,
             tg_dtype_name(weights), tg_dtype_name(cache), bound, worst);
  }
  tg_session_destroy(narrow);
  tg_session_destroy(plain);
  tg_model_destroy(model);
}

static void the_cache_has_a_dtype_of_its_own(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof kFamilies / sizeof kFamilies[0]; i++) {
    for (int place = 0; place < 2; place++) {
      const generation_form form = {.by_place = place};
      check_cache_dtype(kFamilies[i], TG_F32, TG_F16, 3e-3, form);
      check_cache_dtype(kFamilies[i], TG_F32, TG_BF16, 3e-2, form);
      check_cache_dtype(kFamilies[i], TG_BF16, TG_F32, 3e-2, form);
      check_cache_dtype(kFamilies[i], TG_BF16, TG_F16, 3e-2, form);
    }
  }
}

static void the_dtype_of_the_weights_is_the_caches(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_BF16);
  tg_session *named =
      open_session(model, (tg_session_options){.max_tokens = kRoom, .cache_dtype = TG_BF16});
  tg_session *plain = open_session(model, (tg_session_options){.max_tokens = kRoom});
  feed(named, 40);
  feed(plain, 40);
  assert_memory_equal(tg_session_logits(named), tg_session_logits(plain), kIds * sizeof(float));
  assert_int_equal(tg_session_cache_bytes(named), tg_session_cache_bytes(plain));
  tg_session_destroy(named);
  tg_session_destroy(plain);
  tg_session *s = NULL;
  const tg_session_options wrong = {.cache_dtype = TG_I8};
  EXPECT_ERROR(tg_session_create(model, &wrong, &s, &error), TG_BAD_ARGUMENT,
               "session_create: cache_dtype: expected f32|f16|bf16, got i8", error);
  assert_null(s);
  tg_model_destroy(model);
}

static void positions_limit_a_small_model(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_session *s = open_session(model, (tg_session_options){0});
  assert_int_equal(tg_session_capacity(s), 128);
  tg_session_destroy(s);
  assert_int_equal(tg_session_cache_bytes(NULL), 0);
  tg_model_destroy(model);
}

static void half_of_the_memory_limits_a_large_one(void **state)
{
  (void)state;
  const int64_t bytes = tgi_free_memory("");
  assert_true(bytes > 0);
  tg_model *model = generation_model("qwen3_nano", TG_F32);
  tg_session *s = open_session(model, (tg_session_options){0});
  s->model.config.max_position_embeddings = 1 << 24;
  s->model.config.num_hidden_layers = 4096;
  const int64_t per_token = 2LL * 4096 * 64 * 4 + 32 * 4;
  const int64_t fits = tgi_session_default_capacity(s, 0);
  /* The memory of a machine that others use, too, is not the same a moment later. */
  assert_true(fits > bytes / 4 / per_token && fits < bytes / per_token);
  s->model.config.num_key_value_heads = 1 << 20;
  assert_int_equal(tgi_session_default_capacity(s, 0), 256);
  s->model.config.max_position_embeddings = 100;
  assert_int_equal(tgi_session_default_capacity(s, 0), 100);
  s->model.config = model->config;
  tg_session_destroy(s);
  tg_model_destroy(model);
}

static void make_folders(const scratch *dir, const char *path)
{
  char full[1024];
  snprintf(full, sizeof full, "%s/%s", dir->path, path);
  for (char *at = full + strlen(dir->path) + 1; *at; at++) {
    if (*at == '/') {
      *at = '\0';
      mkdir(full, 0777);
      *at = '/';
    }
  }
}

static void write_below(const scratch *dir, const char *path, const char *text)
{
  make_folders(dir, path);
  write_text(scratch_file(dir, path), text);
}

static void free_memory_is_the_least_of_what_is_said(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  assert_int_equal(tgi_free_memory(dir.path), 0);
  write_below(&dir, "proc/meminfo",
              "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n");
  assert_int_equal(tgi_free_memory(dir.path), 8000 * 1024);
  write_below(&dir, "proc/self/cgroup", "4:cpu:/x\n0::/a/b\n");
  write_below(&dir, "sys/fs/cgroup/a/b/memory.max", "max\n");
  write_below(&dir, "sys/fs/cgroup/a/b/memory.current", "5000\n");
  assert_int_equal(tgi_free_memory(dir.path), 8000 * 1024);
  write_below(&dir, "sys/fs/cgroup/a/memory.max", "100000\n");
  write_below(&dir, "sys/fs/cgroup/a/memory.current", "30000\n");
  write_below(&dir, "sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 1000\n");
  assert_int_equal(tgi_free_memory(dir.path), 71000);
  write_below(&dir, "sys/fs/cgroup/a/b/memory.max", "6000\n");
  assert_int_equal(tgi_free_memory(dir.path), 1000);
  write_below(&dir, "sys/fs/cgroup/a/b/memory.current", "7000\n");
  assert_int_equal(tgi_free_memory(dir.path), 0);
  scratch_remove(&dir);

  const scratch old = scratch_make();
  write_below(&old, "proc/meminfo", "MemAvailable: 8000 kB\n");
  write_below(&old, "proc/self/cgroup", "9:memory:/user\n4:cpu:/x\n");
  write_below(&old, "sys/fs/cgroup/memory/user/memory.limit_in_bytes", "4000\n");
  write_below(&old, "sys/fs/cgroup/memory/user/memory.usage_in_bytes", "3000\n");
  write_below(&old, "sys/fs/cgroup/memory/user/memory.stat", "cache 1\ntotal_inactive_file 500\n");
  assert_int_equal(tgi_free_memory(old.path), 1500);
  scratch_remove(&old);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(growing_changes_no_bit),
      cmocka_unit_test(workspace_grows),
      cmocka_unit_test(generating_grows_too),
      cmocka_unit_test(the_cache_has_a_dtype_of_its_own),
      cmocka_unit_test(the_dtype_of_the_weights_is_the_caches),
      cmocka_unit_test(positions_limit_a_small_model),
      cmocka_unit_test(half_of_the_memory_limits_a_large_one),
      cmocka_unit_test(free_memory_is_the_least_of_what_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
