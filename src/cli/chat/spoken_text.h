/** An answer on its way to standard output, and what of it goes into the conversation. */
#ifndef TGI_CLI_CHAT_SPOKEN_TEXT_H
#define TGI_CLI_CHAT_SPOKEN_TEXT_H

#include "files/utf8_stream.h"
#include "generation/stop_strings.h"
#include "text_buffer.h"
#include "thought_filter.h"

/** How answers are shown. */
typedef struct tgi_spoken_style {
  bool terminal; /* control characters are shown, not sent */
  bool dims;     /* thoughts are dimmed */
  bool hides;    /* thoughts are left out */
} tgi_spoken_style;

typedef struct tgi_spoken {
  tgi_spoken_style style;
  tgi_stop_strings *stops; /* borrowed; NULL: none */
  tgi_thought_filter filter;
  tgi_utf8_stream stream;
  tgi_text_buffer answer, thought; /* as the conversation keeps them */
  bool in_thought;                 /* what was printed last */
  char last;                       /* byte that was printed; 0: none */
} tgi_spoken;

/** The struct stays where it is until it is freed; `stops` begins a new text. The other arguments
 * are those of thought_filter.h. */
void tgi_spoken_begin(tgi_spoken *s, tgi_spoken_style style, bool channels, bool thinking,
                      tgi_stop_strings *stops);

/** Prints bytes of a token, which may be parts of characters. False: no memory. */
bool tgi_spoken_push(tgi_spoken *s, const char *bytes, size_t size);

/** Prints what was held back and ends the line. White space around a thought is not kept. */
bool tgi_spoken_finish(tgi_spoken *s);

/** Whether a stop string ended the text. */
bool tgi_spoken_ended(const tgi_spoken *s);

void tgi_spoken_free(tgi_spoken *s);

#endif
