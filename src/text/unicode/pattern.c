#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"
#include "files/file_error.h"
#include "pattern_rewrite.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tgi_pattern {
  pcre2_general_context *memory;
  pcre2_code *code;
  bool jit; /* else PCRE2 interprets: where the system allows no executable memory */
  bool classes;
  size_t missing; /* bytes of a request that failed */
};

struct tgi_matches {
  pcre2_match_data *data;
};

/* PCRE2's requests go through here, so that a failed one is told from other reasons. */
static void *allocate(size_t size, void *pattern)
{
  void *block = malloc(size);
  if (!block) {
    ((tgi_pattern *)pattern)->missing = size;
  }
  return block;
}

static void release(void *block, void *pattern)
{
  (void)pattern;
  free(block);
}

/** *code of the rewritten pattern. Errors: NO_MEMORY, UNSUPPORTED (beyond PCRE2's limits). */
static tg_status compile(tgi_pattern *pattern, const tgi_rewritten *rewritten, const char *path,
                         const char *place, tg_error *error)
{
  int code;
  PCRE2_SIZE offset;
  pattern->memory = pcre2_general_context_create(allocate, release, pattern);
  pcre2_compile_context *how =
      pattern->memory ? pcre2_compile_context_create(pattern->memory) : NULL;
  if (!how) {
    return tgi_file_error_memory(error, path, pattern->missing);
  }
  pattern->code = pcre2_compile((PCRE2_SPTR)rewritten->text, rewritten->size,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &offset, how);
  pcre2_compile_context_free(how);
  if (pattern->code) {
    pattern->jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
  }
  if (pattern->missing > 0) {
    return tgi_file_error_memory(error, path, pattern->missing);
  }
  if (!pattern->code) {
    PCRE2_UCHAR text[128] = {0};
    pcre2_get_error_message(code, text, sizeof text);
    tgi_file_error_fill_at(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                           "%s: expected a pattern for PCRE2, got this error: %s", place,
                           (const char *)text);
    return TG_UNSUPPORTED;
  }
  return TG_OK;
}

tg_status tgi_pattern_compile(const char *text, size_t size, const char *path, const char *place,
                              tgi_pattern **out, tg_error *error)
{
  *out = NULL;
  tgi_rewritten rewritten = tgi_pattern_rewrite(text, size);
  tgi_pattern *pattern = calloc(1, sizeof *pattern);
  tg_status status = TG_OK;
  if (rewritten.rule) {
    const size_t left = size - rewritten.byte;
    tgi_file_error_fill_at(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                           "%s: byte %zu of the pattern: expected %s, got \"%s\"", place,
                           rewritten.byte, rewritten.rule,
                           tgi_quote(text + rewritten.byte, left).text);
    status = TG_UNSUPPORTED;
  } else if (!pattern || !rewritten.text) {
    status = tgi_file_error_memory(error, path, sizeof *pattern);
  } else {
    pattern->classes = rewritten.classes;
    status = compile(pattern, &rewritten, path, place, error);
  }
  free(rewritten.text);
  if (status == TG_OK) {
    *out = pattern;
  } else {
    tgi_pattern_free(pattern);
  }
  return status;
}

void tgi_pattern_free(tgi_pattern *pattern)
{
  if (pattern) {
    pcre2_code_free(pattern->code);
    pcre2_general_context_free(pattern->memory);
    free(pattern);
  }
}

bool tgi_pattern_has_classes(const tgi_pattern *pattern)
{
  return pattern->classes;
}

tgi_matches *tgi_matches_make(void)
{
  tgi_matches *matches = calloc(1, sizeof *matches);
  if (matches) {
    matches->data = pcre2_match_data_create(1, NULL);
  }
  if (matches && !matches->data) {
    free(matches);
    return NULL;
  }
  return matches;
}

void tgi_matches_free(tgi_matches *matches)
{
  if (matches) {
    pcre2_match_data_free(matches->data);
    free(matches);
  }
}

tgi_match tgi_pattern_find(const tgi_pattern *pattern, tgi_matches *matches, const char *text,
                           size_t size, size_t at, size_t *begin, size_t *end)
{
  const PCRE2_SPTR subject = (PCRE2_SPTR)text;
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pattern->jit) {
    found = pcre2_jit_match(pattern->code, subject, size, at, 0, matches->data, NULL);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(pattern->code, subject, size, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        matches->data, NULL);
  }
  if (found < 0) {
    return found == PCRE2_ERROR_NOMATCH ? TGI_MATCH_NONE : TGI_MATCH_TOO_HARD;
  }
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(matches->data);
  *begin = offsets[0];
  *end = offsets[1];
  return TGI_MATCH_FOUND;
}
