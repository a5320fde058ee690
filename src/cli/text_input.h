/** A whole file, or all of standard input, in memory. */
#ifndef TGI_CLI_TEXT_INPUT_H
#define TGI_CLI_TEXT_INPUT_H

#include "files/file_map.h"

typedef struct tgi_text_input {
  const char *name; /* for messages */
  const char *text;
  size_t size;
  char *block;      /* of standard input; to be freed */
  tgi_file_map map; /* of a file */
} tgi_text_input;

/** Reads `path`; NULL or "-": standard input. Errors: IO, BAD_FILE, NO_MEMORY. */
tg_status tgi_text_input_open(const char *path, tgi_text_input *input, tg_error *error);

/** Also after a failure. */
void tgi_text_input_close(tgi_text_input *input);

#endif
