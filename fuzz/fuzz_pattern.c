/* Patterns: those that are taken compile, and cut a text into pieces that are not empty. */
#include "files/utf8.h"
#include "text/unicode/pattern.h"
#include "text/unicode/pattern_rewrite.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

static void cut(const tgi_pattern *pattern)
{
  static const char text[] =
      "The  12345's caf\xc3\xa9 e\xcc\x81 \xe4\xbd\xa0\xe5\xa5\xbd\n\n aaaaaaaaaa()";
  tgi_matches *matches = tgi_matches_make();
  size_t at = 0, begin, end;
  require(matches != NULL);
  while (at < sizeof text - 1 && tgi_pattern_find(pattern, matches, text, sizeof text - 1, at,
                                                  &begin, &end) == TGI_MATCH_FOUND) {
    require(begin >= at && end > begin && end < sizeof text);
    at = end;
  }
  tgi_matches_free(matches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *text = (const char *)data;
  if (size > 1000 || tgi_utf8_valid_bytes(text, size) < size) {
    return 0; /* JSON holds UTF-8 alone */
  }
  tgi_rewritten rewritten = tgi_pattern_rewrite(text, size);
  require((rewritten.text != NULL) != (rewritten.rule != NULL));
  require(rewritten.byte <= size);
  free(rewritten.text);
  tgi_pattern *pattern;
  tg_error error = {0};
  const tg_status status = tgi_pattern_compile(text, size, "fuzz", "pattern", &pattern, &error);
  /* PCRE2 has limits of its own: a group that is too long to follow or to repeat. */
  require(status == TG_OK || status == TG_UNSUPPORTED);
  require(status == TG_OK || !rewritten.text || strstr(error.text, "PCRE2"));
  if (status == TG_OK) {
    cut(pattern);
  }
  tgi_pattern_free(pattern);
  return 0;
}
