#include "utf8_stream.h"
#include "utf8.h"
#include <string.h>

static const char replacement[3] = {'\xef', '\xbf', '\xbd'};

size_t tgi_utf8_stream_push(tgi_utf8_stream *stream, const char *bytes, size_t size, char *out)
{
  size_t written = 0;
  size_t taken = 0;
  for (;;) {
    /* A sequence has at most four bytes, so pending bytes and a few new ones decide the next step.
     */
    char window[4];
    const size_t held = stream->pending_size;
    size_t fresh = size - taken;
    if (fresh > sizeof window - held) {
      fresh = sizeof window - held;
    }
    memcpy(window, stream->pending, held);
    if (fresh > 0) {
      memcpy(window + held, bytes + taken, fresh);
    }
    if (held + fresh == 0) {
      return written;
    }

    bool complete, open;
    const size_t length = tgi_utf8_subpart(window, held + fresh, &complete, &open);
    if (open) { /* the window holds all there is: wait */
      memcpy(stream->pending, window, length);
      stream->pending_size = length;
      return written;
    }
    if (complete) {
      memcpy(out + written, window, length);
      written += length;
    } else {
      memcpy(out + written, replacement, sizeof replacement);
      written += sizeof replacement;
    }
    /* Pending bytes always begin one sequence, so the step consumes all of them. */
    taken += length - held;
    stream->pending_size = 0;
  }
}

size_t tgi_utf8_stream_finish(tgi_utf8_stream *stream, char *out)
{
  const size_t size = stream->pending_size > 0 ? sizeof replacement : 0;
  memcpy(out, replacement, size);
  stream->pending_size = 0;
  return size;
}
