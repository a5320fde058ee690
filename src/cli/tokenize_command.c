/* tegula tokenize: text to ids, as lines, numbers, JSON, or a file to train on. */
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "data/data_files.h"
#include "data/token_file.h"
#include "files/hub_name.h"
#include "files/utf8.h"
#include "generate/token_text.h"
#include "json_print.h"
#include "option_table.h"
#include "text/tokenizer_state.h"
#include "text_input.h"

#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula tokenize";

typedef struct options {
  const char *file, *out, *format;
  bool ids, json, count, plain, add_special;
} options;

#define TEXT_ROW(option, field, argument_, letter_, help_)                                         \
  {                                                                                                \
    .name = option, .argument = argument_, .kind = TGI_OPTION_TEXT,                                \
    .offset = TGI_AT(options, field), .help = help_, .letter = letter_                             \
  }
#define FLAG_ROW(option, field, help_)                                                             \
  {                                                                                                \
    .name = option, .kind = TGI_OPTION_FLAG, .offset = TGI_AT(options, field), .help = help_       \
  }

static const tgi_option rows[] = {
    TEXT_ROW("file", file, "FILE", 'f', "the text; without it standard input is read"),
    FLAG_ROW("ids", ids, "print the ids alone, in one line"),
    FLAG_ROW("json", json, "print one JSON object: count, ids, pieces"),
    FLAG_ROW("count", count, "print the number of ids alone"),
    FLAG_ROW("plain", plain, "encode the text of added tokens as ordinary text"),
    FLAG_ROW("add-special", add_special, "add the tokens that begin and end a text"),
    TEXT_ROW("out", out, "FILE", 0, "write the ids to FILE, to train on, and print nothing"),
    TEXT_ROW("format", format, "NAME", 0, "of --out: llm.c or tegula (llm.c)"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula tokenize",
    .positions = "DIR",
    .help = "Encode text with the tokenizer in a Hugging Face directory.\vWithout --ids, --json, "
            "--count or --out, each token is a line: its id, and its text in quotes.",
    .options = rows,
    .most_positions = 1,
};

/* ---- what is printed ---- */

/* A token in quotes; bytes that are no characters of their own as \xHH. */
static void print_piece(tg_token piece)
{
  putchar('"');
  for (size_t i = 0; i < piece.size;) {
    uint32_t point = 0;
    const size_t length = tgi_utf8_decode(piece.bytes + i, piece.size - i, &point);
    if (length == 1 && strchr("\"\\", (int)point) && point) {
      printf("\\%c", (int)point);
    } else if (point == '\n' && length == 1) {
      (void)fputs("\\n", stdout);
    } else if (length == 0 || point < 0x20 || (point >= 0x7f && point < 0xa0)) {
      for (size_t k = 0; k < (length ? length : 1); k++) {
        printf("\\x%02x", (unsigned char)piece.bytes[i + k]);
      }
    } else {
      (void)fwrite(piece.bytes + i, 1, length, stdout);
    }
    i += length ? length : 1;
  }
  puts("\"");
}

static void print_lines(const tg_tokenizer *t, const int32_t *ids, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    printf("%7d  ", ids[i]);
    print_piece(tg_tokenizer_piece(t, ids[i]));
  }
}

static void print_ids(const int32_t *ids, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    printf(i ? " %d" : "%d", ids[i]);
  }
  putchar('\n');
}

static void print_json(const tg_tokenizer *t, const int32_t *ids, size_t count)
{
  json_t *root = tgi_json_new(), *numbers = json_array(), *pieces = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(numbers, json_integer(ids[i]));
    json_array_append_new(pieces, tgi_token_text(tg_tokenizer_piece(t, ids[i])));
  }
  json_object_set_new(root, "count", json_integer((json_int_t)count));
  json_object_set_new(root, "ids", numbers);
  json_object_set_new(root, "pieces", pieces);
  tgi_json_print(root, JSON_COMPACT);
}

static tg_status put(const options *o, const tg_tokenizer *t, const int32_t *ids, size_t count,
                     tg_error *error)
{
  tgi_token_format format;
  if (o->out) {
    (void)tgi_token_format_of(o->format, &format);
    const int32_t size = tg_tokenizer_vocab_size(t);
    const tg_status status = tgi_token_file_write(o->out, format, ids, count, size, error);
    if (status == TG_OK) {
      fprintf(stderr, "%s: %zu ids of %zu bytes\n", o->out, count, tgi_token_bytes(size));
    }
    return status;
  }
  if (o->json) {
    print_json(t, ids, count);
  } else if (o->ids) {
    print_ids(ids, count);
  } else if (o->count) {
    printf("%zu\n", count);
  } else {
    print_lines(t, ids, count);
  }
  return TG_OK;
}

/* ---- the command ---- */

static tg_status run(const options *o, const char *directory, tg_error *error)
{
  tgi_text_input input = {0};
  tgi_model_path path;
  tg_tokenizer *t = NULL;
  int32_t *ids = NULL;
  size_t count = 0;
  const uint32_t flags =
      (o->plain ? TG_TOKENIZER_PLAIN : 0) | (o->add_special ? TG_TOKENIZER_ADD_SPECIAL : 0);
  tg_status status = tgi_model_path_find(directory, &path, error);
  status = status ? status : tg_tokenizer_load(path.text, &t, error);
  status = status ? status : tgi_text_input_open(o->file, &input, error);
  if (status == TG_OK) {
    status = tgi_tokenizer_encode_all(t, input.text, input.size, flags, &ids, &count, error);
    if (status == TG_BAD_ARGUMENT) {
      const tg_error inner = *error;
      tgi_error_set(error, status, "%s: %.400s", input.name, inner.text);
    }
  }
  status = status ? status : put(o, t, ids, count, error);
  free(ids);
  tgi_text_input_close(&input);
  tg_tokenizer_destroy(t);
  return status;
}

int tgi_tokenize_command(int argc, char **argv)
{
  options o = {.format = NULL};
  tgi_parsed given;
  tgi_token_format format;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (given.num_positions == 0) {
    return tgi_usage_error(&command_line, "expected DIR, got no argument");
  }
  if (o.ids + o.json + o.count + (o.out != NULL) > 1) {
    return tgi_usage_error(&command_line, "expected one of --ids, --json, --count and --out");
  }
  if (o.file && o.out && tgi_same_file(o.file, o.out)) {
    return tgi_usage_error(&command_line, "--out: expected another file than --file, got %s",
                           o.out);
  }
  if (o.format && !o.out) {
    return tgi_usage_error(&command_line, "--format: expected --out FILE too, got none");
  }
  o.format = o.format ? o.format : "llm.c";
  if (!tgi_token_format_of(o.format, &format)) {
    return tgi_usage_error(&command_line, "--format: expected llm.c or tegula, got %s", o.format);
  }
  return run(&o, given.position[0], &error) ? tgi_console_fail_with(kName, &error) : 0;
}
