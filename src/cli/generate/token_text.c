#include "token_text.h"

#include "files/utf8_stream.h"
#include <stdlib.h>

json_t *tgi_token_text(tg_token token)
{
  tgi_utf8_stream stream = {0};
  char *valid = malloc(TGI_UTF8_STREAM_BOUND(token.size) + 3);
  size_t size = valid ? tgi_utf8_stream_push(&stream, token.bytes, token.size, valid) : 0;
  size += valid ? tgi_utf8_stream_finish(&stream, valid + size) : 0;
  json_t *text = valid ? json_stringn(valid, size) : NULL;
  free(valid);
  return text;
}
