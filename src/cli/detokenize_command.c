/* tegula detokenize: lines of ids to lines of text. */
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "core/growing.h"
#include "files/file_error.h"
#include "files/hub_name.h"
#include "files/utf8_stream.h"
#include "option_table.h"
#include "tegula/tokenizer.h"
#include "text_input.h"

#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula detokenize";

typedef struct options {
  const char *file;
  bool skip_special;
} options;

static const tgi_option rows[] = {
    {.name = "file",
     .argument = "FILE",
     .kind = TGI_OPTION_TEXT,
     .offset = TGI_AT(options, file),
     .help = "the ids; without it standard input is read",
     .letter = 'f'},
    {.name = "skip-special",
     .kind = TGI_OPTION_FLAG,
     .offset = TGI_AT(options, skip_special),
     .help = "leave special tokens out"},
    {0},
};

static const tgi_command command_line = {
    .name = "tegula detokenize",
    .positions = "DIR",
    .help = "Decode ids with the tokenizer in a Hugging Face directory.\vEach line of ids, with "
            "spaces or commas between them and maybe [ ] around them, becomes a line of text. "
            "Bytes that are no characters become U+FFFD.",
    .options = rows,
    .most_positions = 1,
};

typedef struct decoding {
  tg_tokenizer *tokenizer;
  tgi_text_input input;
  bool skip_special;
  int32_t *ids;
  size_t count, capacity;
  tg_error *error;
} decoding;

static tg_status add_id(decoding *d, int64_t id)
{
  int32_t *grown = tgi_grow(d->ids, &d->capacity, d->count + 1, sizeof *grown);
  if (!grown) {
    return tgi_error_set(d->error, TG_NO_MEMORY, "ids: expected %zu bytes of memory, got none",
                         (d->count + 1) * sizeof *grown);
  }
  d->ids = grown;
  grown[d->count++] = (int32_t)id;
  return TG_OK;
}

/* The ids of a line, input.text[at, end). */
static tg_status read_line(decoding *d, size_t at, size_t end)
{
  tg_status status = TG_OK;
  d->count = 0;
  while (at < end && status == TG_OK) {
    const size_t start = at;
    int64_t id = 0;
    while (at < end && d->input.text[at] >= '0' && d->input.text[at] <= '9' && id <= INT32_MAX) {
      id = 10 * id + (d->input.text[at++] - '0');
    }
    const char next = at < end ? d->input.text[at] : ' ';
    if (id > INT32_MAX || !strchr(" ,\t\r[]", next) || !next) {
      return tgi_error_set(d->error, TG_BAD_FILE, "%s: byte %zu: expected ids, got \"%s\"",
                           d->input.name, start,
                           tgi_quote(d->input.text + start, end - start).text);
    }
    status = at > start ? add_id(d, id) : TG_OK;
    at++;
  }
  return status;
}

static void print_line(const decoding *d)
{
  tgi_utf8_stream stream = {0};
  char valid[TGI_UTF8_STREAM_BOUND(256)];
  for (size_t i = 0; i < d->count; i++) {
    tg_token token = tg_tokenizer_piece(d->tokenizer, d->ids[i]);
    if (d->skip_special && token.kind == TG_TOKEN_SPECIAL) {
      continue;
    }
    while (token.size > 0) {
      const size_t some = token.size < 256 ? token.size : 256;
      const size_t ready = tgi_utf8_stream_push(&stream, token.bytes, some, valid);
      (void)fwrite(valid, 1, ready, stdout);
      token.bytes += some;
      token.size -= some;
    }
  }
  (void)fwrite(valid, 1, tgi_utf8_stream_finish(&stream, valid), stdout);
  putchar('\n');
}

static tg_status decode(decoding *d)
{
  tg_status status = TG_OK;
  for (size_t at = 0; at < d->input.size && status == TG_OK;) {
    const char *newline = memchr(d->input.text + at, '\n', d->input.size - at);
    const size_t end = newline ? (size_t)(newline - d->input.text) : d->input.size;
    status = read_line(d, at, end);
    if (status == TG_OK) {
      print_line(d);
    }
    at = end + 1;
  }
  return status;
}

int tgi_detokenize_command(int argc, char **argv)
{
  options o = {NULL, false};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (given.num_positions == 0) {
    return tgi_usage_error(&command_line, "expected DIR, got no argument");
  }
  decoding d = {.skip_special = o.skip_special, .error = &error};
  tgi_model_path path;
  tg_status status = tgi_model_path_find(given.position[0], &path, &error);
  status = status ? status : tg_tokenizer_load(path.text, &d.tokenizer, &error);
  status = status ? status : tgi_text_input_open(o.file, &d.input, &error);
  status = status ? status : decode(&d);
  free(d.ids);
  tgi_text_input_close(&d.input);
  tg_tokenizer_destroy(d.tokenizer);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
