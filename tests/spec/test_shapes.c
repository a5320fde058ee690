/* Shape strings of every op, valid and not: reading one and explaining its call never crashes or
 * hangs, and what is refused is refused by one line. Small calls run, too. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "core/context_state.h"
#include "ops/spec.h"
#include <cmocka.h>
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  kCases = 16,         /* of a spec, whose words are changed */
  kTextBytes = 400,    /* more than a shape string may have */
  kRunBytes = 1 << 16, /* tensors of a call that runs, at most */
  kSeconds = 20,       /* for all strings of a row; a hang takes longer */
  kViews = TGI_SHAPE_MAX_LISTED + 32
};

/* What a number of a string becomes. */
static const char *const awkward[] = {
    "0",
    "1",
    "3",
    "-1",
    "",
    "q",
    "007",
    "65537",
    "2147483648",
    "4294967296",
    "3037000500",
    "1000000000000",
    "999999999999999999",
    "9223372036854775807",
    "18446744073709551616",
};

/* What is no shape of any op. */
static const char *const junk[] = {
    "",        "_",           "x",           "xx",
    "0",       "0x0",         "0x0x0",       "0x0x0x0x0x0x0",
    "5x",      "5x0",         "x5",          "5xx",
    "5x-",     "-5",          "5 x 5",       "5x5_",
    "5x5__",   "_5x5",        "5x5_junk",    "b0_h0_s0_d0",
    "%n%s",    "5x5\n5",      "\x1b[31m5x5", "\xff\xfe",
    "b_h_s_d", "b1_h1_s1_d0", "b1_s1_h1_d0", "9e9x2",
};

static char *current; /* the string in work, in memory that the parent shares */
static int explained; /* valid strings of a row */

/* ---- one string ---- */

static bool is_one_line(const char *text)
{
  return text[0] && !strpbrk(text, "\n\r");
}

static void require(bool condition, const char *what, const char *text)
{
  if (!condition) {
    snprintf(current + kTextBytes, kTextBytes, "%s: \"%.300s\"", what, text);
    _exit(1);
  }
}

/* An extent of 0 counts as 1: a kernel may pass over 2^31 rows of nothing. */
static double bytes_of(const tgi_shaped_view *views, int n)
{
  double bytes = 0;
  for (int i = 0; i < n; i++) {
    double one = (double)tg_dtype_bytes(views[i].tensor->dtype);
    for (int k = 0; k < views[i].tensor->ndim; k++) {
      one *= fmax(1, (double)views[i].tensor->shape[k]);
    }
    bytes += one;
  }
  return bytes;
}

/* Runs a small call on zeros; it may refuse them, as no sequence has the length 0. */
static void run_small(tg_context *ctx, tgi_shaped *shaped, size_t workspace)
{
  tgi_shaped_view views[kViews];
  const int n = tgi_shaped_views(shaped, views, kViews);
  if (bytes_of(views, n) > kRunBytes || workspace > 1 << 22) {
    return;
  }
  char *block = aligned_alloc(256, 2 * kRunBytes + kViews * 256 + workspace + 256);
  require(block != NULL, "memory", "none");
  memset(block, 0, 2 * kRunBytes + kViews * 256 + workspace + 256);
  char *at = block;
  for (int i = 0; i < n; i++) {
    views[i].tensor->data = at;
    at += ((size_t)bytes_of(&views[i], 1) + 255) / 256 * 256;
  }
  for (size_t i = 0; i < shaped->info->num_slots; i++) {
    const tg_slot_info *slot = &shaped->info->slots[i];
    if (slot->kind == TG_KIND_WORKSPACE) {
      *(void **)(void *)(shaped->args.bytes + slot->offset) = at;
    } else if (slot->kind == TG_KIND_SIZE) {
      *(size_t *)(void *)(shaped->args.bytes + slot->offset) = workspace;
    }
  }
  const tg_status status = shaped->info->run(ctx, shaped->args.bytes);
  require(status == TG_OK || is_one_line(tg_context_message(ctx)), "refusal of a run",
          tg_context_message(ctx));
  free(block);
}

static void try_one(tg_context *ctx, const char *row, const char *text, tg_dtype dtype)
{
  static tgi_shaped shaped;
  tg_error error = {TG_OK, ""};
  snprintf(current, kTextBytes, "%s", text);
  if (tgi_shape_fill(row, text, dtype, &shaped, &error) != TG_OK) {
    require(is_one_line(error.text), "refusal of a shape", error.text);
    return;
  }
  require(shaped.cost.flops >= 0 && shaped.cost.read_bytes + shaped.cost.written_bytes >= 0 &&
              isfinite(shaped.cost.flops + shaped.cost.read_bytes + shaped.cost.written_bytes),
          "cost", text);
  tgi_shaped_place(&shaped);
  size_t workspace = 0;
  if (shaped.info->workspace(ctx, shaped.args.bytes, &workspace) != TG_OK) {
    require(is_one_line(tg_context_message(ctx)), "refusal of a call", tg_context_message(ctx));
    return;
  }
  char plan[256];
  tgi_shape_explain(ctx, &shaped, plan, sizeof plan);
  require(is_one_line(plan), "plan", plan);
  explained++;
  run_small(ctx, &shaped, workspace);
}

/* ---- the strings of a row ---- */

/* What tests and benchmarks use is valid. */
static void require_valid(const char *row, const char *text)
{
  static tgi_shaped shaped;
  tg_error error = {TG_OK, ""};
  snprintf(current, kTextBytes, "%s", text);
  require(tgi_shape_fill(row, text, TG_F32, &shaped, &error) == TG_OK, "refusal", error.text);
}

/* Every number of the string by every awkward one, and every word left out or doubled. */
static void try_changes(tg_context *ctx, const char *row, const char *shape, tg_dtype dtype)
{
  char text[kTextBytes];
  for (const char *at = shape; *at; at++) {
    const bool begins =
        isdigit((unsigned char)*at) && (at == shape || !isdigit((unsigned char)at[-1]));
    const char *end = at + strspn(at, "0123456789");
    for (size_t i = 0; begins && i < sizeof awkward / sizeof awkward[0]; i++) {
      snprintf(text, sizeof text, "%.*s%s%s", (int)(at - shape), shape, awkward[i], end);
      try_one(ctx, row, text, dtype);
    }
    if (at == shape || at[-1] == '_') {
      const char *next = at + strcspn(at, "_");
      snprintf(text, sizeof text, "%.*s%s", (int)(at - shape), shape, *next ? next + 1 : next);
      try_one(ctx, row, text, dtype);
      snprintf(text, sizeof text, "%.*s%.*s_%s", (int)(at - shape), shape, (int)(next - at), at,
               at);
      try_one(ctx, row, text, dtype);
    }
  }
  snprintf(text, sizeof text, "%s_%s", shape, shape);
  try_one(ctx, row, text, dtype);
}

/* All numbers at once. */
static void try_all_alike(tg_context *ctx, const char *row, const char *shape, tg_dtype dtype)
{
  for (size_t i = 0; i < sizeof awkward / sizeof awkward[0]; i++) {
    char text[kTextBytes] = "";
    for (const char *at = shape; *at;) {
      const size_t digits = strspn(at, "0123456789"), used = strlen(text);
      snprintf(text + used, sizeof text - used, "%.*s", digits ? 40 : 1, digits ? awkward[i] : at);
      at += digits ? digits : 1;
    }
    try_one(ctx, row, text, dtype);
  }
}

static void try_row(const spec *s)
{
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_CPU, .num_threads = 1};
  require(tg_context_create(&options, &ctx, NULL) == TG_OK, "context", "none");
  for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
    try_one(ctx, s->name, junk[i], TG_F32);
  }
  char longest[kTextBytes];
  memset(longest, '9', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  for (size_t size = 1; size < sizeof longest; size += size < 30 ? 1 : 43) {
    try_one(ctx, s->name, longest + sizeof longest - 1 - size, TG_F32);
  }
  int tried = 0;
  for (const spec_case *c = s->cases; c->shape; c++) {
    require_valid(s->name, c->shape);
    try_all_alike(ctx, s->name, c->shape, TG_BF16);
    if (tried++ < kCases) {
      try_changes(ctx, s->name, c->shape, tried % 2 ? TG_F32 : TG_F16);
    }
  }
  for (const char *const *shape = s->bench; shape && *shape; shape++) {
    require_valid(s->name, *shape);
  }
  tg_context_destroy(ctx);
  require(explained > 20, "strings", "too few valid ones");
}

/* In a child, so that a crash names its string. */
static void no_string_crashes(void **state)
{
  (void)state;
  current = mmap(NULL, 2 * kTextBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(current != MAP_FAILED);
  int failures = 0;
  for (size_t i = 0; i < spec_count; i++) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    current[0] = current[kTextBytes] = '\0';
    if (pid == 0) {
      for (int number = 1; number < NSIG; number++) {
        signal(number, SIG_DFL); /* cmocka's handlers go on after a crash */
      }
      alarm(kSeconds);
      try_row(spec_list[i]);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) {
      print_error("%s \"%s\": %s\n", spec_list[i]->name, current,
                  WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : current + kTextBytes);
      failures++;
    }
  }
  munmap(current, 2 * kTextBytes);
  assert_int_equal(failures, 0);
}

/* An input that no gradient needs is not read, nor are accumulators that are overwritten. */
static void bytes_are_those_of_what_a_call_needs(void **state)
{
  (void)state;
  const struct {
    const char *row, *text;
    double read, written;
  } cases[] = {
      {"linear_bwd", "8x16x32", 4 * (8 * 32 + 8 * 16 + 2 * 32 * 16 + 32),
       4 * (8 * 16 + 32 * 16 + 32)},
      {"linear_bwd", "8x16x32_nodx", 4 * (8 * 32 + 8 * 16 + 32 * 16 + 32), 4 * (32 * 16 + 32)},
      {"linear_bwd", "8x16x32_nodx_overwrite", 4 * (8 * 32 + 8 * 16), 4 * (32 * 16 + 32)},
      {"linear_bwd", "8x16x32_nodweight_nodbias", 4 * (8 * 32 + 32 * 16), 4 * 8 * 16},
      {"grouped_linear_bwd", "8x16x32_e4_nodx_nodbias_overwrite", 4 * (8 * 32 + 8 * 16 + 5),
       4 * 4 * 32 * 16},
      {"grouped_linear_bwd", "8x16x32_e4_nodweight_nodbias", 4 * (8 * 32 + 4 * 32 * 16 + 5),
       4 * 8 * 16},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static tgi_shaped shaped;
    tg_error error = {TG_OK, ""};
    assert_int_equal(tgi_shape_fill(cases[i].row, cases[i].text, TG_F32, &shaped, &error), TG_OK);
    assert_true(shaped.cost.read_bytes == cases[i].read);
    assert_true(shaped.cost.written_bytes == cases[i].written);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_string_crashes),
      cmocka_unit_test(bytes_are_those_of_what_a_call_needs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
