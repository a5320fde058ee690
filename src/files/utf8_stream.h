/**
 * Turns a stream of bytes that arrive in any pieces (tokens, say) into valid UTF-8 for a terminal
 * or a log: bytes of an unfinished sequence wait for the next piece, and what can never become
 * valid is replaced by U+FFFD, one per maximal subpart (Unicode 15, section 3.9), as Python's
 * errors="replace" does.
 */
#ifndef TGI_FILES_UTF8_STREAM_H
#define TGI_FILES_UTF8_STREAM_H

#include <stddef.h>

/** Starts zeroed. */
typedef struct tgi_utf8_stream {
  char pending[4];
  size_t pending_size; /* at most 3 */
} tgi_utf8_stream;

/** Bytes that `out` needs for a push of `size` bytes (U+FFFD takes three). */
#define TGI_UTF8_STREAM_BOUND(size) (3 * ((size) + 3))

/** Adds bytes; writes what is complete to `out` and returns its size. */
size_t tgi_utf8_stream_push(tgi_utf8_stream *stream, const char *bytes, size_t size, char *out);

/** Ends the stream: an unfinished sequence becomes one U+FFFD. Writes at most 3 bytes; restarts. */
size_t tgi_utf8_stream_finish(tgi_utf8_stream *stream, char *out);

#endif
