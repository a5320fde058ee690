/* tegula generate: continues a prompt and prints the text token by token; or several prompts, into
 * a file of results. */
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "data/data_files.h"
#include "generate/generator.h"
#include "generate/prompt_batch.h"
#include "generate/text_report.h"
#include "interrupt.h"
#include "json_print.h"
#include "option_table.h"

#include <stdio.h>
#include <string.h>

static const char kName[] = "tegula generate";

typedef struct options {
  const char *model, *prompt, *tokens, *file, *out;
  int32_t logprobs; /* -1: none */
  int32_t parallel;
  bool echo, json, quiet;
  tgi_generation_options generation;
} options;

#define ROW(name, letter, field, argument, kind, help)                                             \
  {                                                                                                \
    name, argument, TGI_AT(options, field), 0, 0, help, TGI_OPTION_##kind, letter                  \
  }

static const tgi_option rows[] = {
    ROW("model", 'm', model, "DIR", TEXT, "the model's directory or hub name, instead of DIR"),
    ROW("prompt", 'p', prompt, "TEXT", TEXT, "the prompt, instead of PROMPT"),
    ROW("file", 'f', file, "FILE", TEXT,
        "the prompt is the text of FILE, without a newline at its end; FILE.jsonl holds a prompt "
        "per line, {\"prompt\": \"...\"}, and needs --out"),
    ROW("out", 0, out, "FILE", TEXT, "write a line of JSON per prompt of FILE.jsonl to FILE"),
    {"parallel", "N", TGI_AT(options, parallel), 1, TG_ENGINE_MAX_BATCH,
     "how many prompts of FILE.jsonl run at the same time (16)", TGI_OPTION_I32, 0},
    ROW("tokens", 0, tokens, "IDS", TEXT,
        "token ids instead of PROMPT (\"1,2,3\"); prints ids too and needs no tokenizer"),
    ROW("echo", 0, echo, NULL, FLAG, "print the prompt before the generated text"),
    ROW("json", 0, json, NULL, FLAG,
        "print one JSON object: text, ids, finish_reason (stop or length), timings"),
    {"logprobs", "N", TGI_AT(options, logprobs), 0, TG_MAX_TOP_LOGPROBS,
     "with --json or --out: log-probabilities of the tokens, and of the N most probable ones at "
     "each",
     TGI_OPTION_I32, 0},
    ROW("quiet", 0, quiet, NULL, FLAG, "print no statistics, and measure no bandwidth for them"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula generate",
    .positions = "[DIR] [PROMPT]",
    .help =
        "Generate text with a model: a Hugging Face directory, or a name on the hub that is in the "
        "local cache.\vText goes to standard output and statistics go to standard error. With "
        "PROMPT \"-\" the prompt is read from standard input. Generation ends at any of the "
        "model's end tokens, before a stop string, after --max-tokens, or when the context is "
        "full. Ctrl-C ends it with exit code 130. The penalties of presence and frequency count "
        "what was generated, the repetition penalty also the prompt. Long names of llama-cli are "
        "taken where they mean the same. The directory's defaults are those of its "
        "generation_config.json.",
    .options = rows,
    .most_positions = 2,
    .shared = tgi_generation_rows,
    .shared_at = TGI_AT(options, generation),
};

/* ---- the text of one prompt ---- */

/* The sinks of text and of ids. */
static bool print_text(void *user, int32_t id, const char *text, size_t size)
{
  (void)user;
  (void)id;
  if (size > 0) {
    (void)fwrite(text, 1, size, stdout);
    fflush(stdout);
  }
  return !ferror(stdout);
}

static bool print_id(void *user, int32_t id, const char *text, size_t size)
{
  int64_t *printed = user;
  (void)text;
  (void)size;
  if (id >= 0) {
    printf((*printed)++ > 0 ? " %d" : "%d", id);
    fflush(stdout);
  }
  return !ferror(stdout);
}

static tg_status echo(const tgi_text_run *r, int64_t *printed, tg_error *error)
{
  const tgi_prompt *p = r->prompt;
  tg_tokenizer *tokenizer = r->generator->tokenizer;
  for (int64_t i = 0; i < p->count && !tokenizer; i++) {
    print_id(printed, p->ids[i], "", 0);
  }
  tgi_utf8_stream stream = {0};
  for (int64_t i = 0; i < p->count && tokenizer; i++) {
    tg_token token = tg_tokenizer_piece(tokenizer, p->ids[i]);
    char valid[TGI_UTF8_STREAM_BOUND(256)];
    while (token.kind != TG_TOKEN_SPECIAL && token.size > 0) {
      const size_t some = token.size < 256 ? token.size : 256;
      print_text(NULL, 0, valid, tgi_utf8_stream_push(&stream, token.bytes, some, valid));
      token.bytes += some;
      token.size -= some;
    }
  }
  return ferror(stdout) ? tgi_error_set(error, TG_IO, "standard output: expected to write") : TG_OK;
}

static void print_context(const tgi_generator *g)
{
  fprintf(stderr, "context: %lld tokens (%s)\n", (long long)tgi_generator_capacity(g),
          tgi_generator_limit(g));
}

static void print_end(const tgi_generator *g, const tgi_timings *t, const char *reason)
{
  fflush(stdout);
  tgi_timings_print(t);
  if (tgi_generation_device(g->o).backend == TG_BACKEND_CUDA) {
    fprintf(stderr, " | passes: %s", tg_session_steps(g->session));
  }
  fprintf(stderr, " | ended: %s\n", reason);
}

static void report(const options *o, const tgi_text_run *r)
{
  const tgi_generator *g = r->generator;
  tgi_timings t = {.load_ms = 1e3 * g->load_seconds};
  tgi_timings_add(&t, r);
  t.read_speed = o->quiet ? 0 : tgi_generator_read_speed(g);
  if (o->json) {
    tgi_json_print(tgi_text_json(r, &t), JSON_COMPACT);
  } else if (!o->quiet) {
    print_end(g, &t, r->reason);
  }
}

static tg_status run_one(const options *o, tgi_generator *g, const tgi_prompt *prompt,
                         tg_error *error)
{
  int64_t printed = 0;
  tgi_text_run r = {.generator = g,
                    .numbers = &o->generation.numbers,
                    .prompt = prompt,
                    .sink = o->json        ? NULL
                            : g->tokenizer ? print_text
                                           : print_id,
                    .user = &printed,
                    .with_logprobs = o->logprobs >= 0,
                    .num_top = o->logprobs >= 0 ? o->logprobs : 0};
  tgi_generator_expect(g, prompt->count, r.numbers);
  tg_status status = tgi_generator_open(g, error);
  status = status ? status : tgi_generator_fits(g, "prompt", prompt->count, error);
  if (status != TG_OK) {
    return status;
  }
  if (!o->quiet && !o->json) {
    print_context(g);
  }
  tgi_interrupt_catch();
  status = tgi_text_run_prompt(&r, error);
  status = status || !o->echo ? status : echo(&r, &printed, error);
  status = status ? status : tgi_text_run_generate(&r, error);
  if (!o->json) {
    putchar('\n');
  }
  if (status == TG_OK) {
    report(o, &r);
  }
  tgi_text_run_free(&r);
  return status;
}

static tg_status generate_one(const options *o, tgi_generator *g, tg_error *error)
{
  tgi_prompt prompt = {0};
  tg_status status =
      o->tokens ? tgi_prompt_parse(o->tokens, &prompt, error)
      : o->file ? tgi_prompt_read(g->tokenizer, o->file, &prompt, error)
      : strcmp(o->prompt, "-") == 0
          ? tgi_prompt_read(g->tokenizer, "-", &prompt, error)
          : tgi_prompt_encode(g->tokenizer, o->prompt, strlen(o->prompt), &prompt, error);
  status = status ? status : run_one(o, g, &prompt, error);
  tgi_prompt_free(&prompt);
  return status;
}

/* ---- several prompts ---- */

static tg_status make_room(const options *o, tgi_generator *g, const tgi_prompt_list *list,
                           tg_error *error)
{
  for (size_t i = 0; i < list->count; i++) {
    tgi_generator_expect(g, list->items[i].prompt.count, &list->items[i].numbers);
  }
  tg_status status = tgi_generator_open_engine(g, list->count, o->parallel, error);
  for (size_t i = 0; i < list->count && status == TG_OK; i++) {
    char name[256];
    snprintf(name, sizeof name, "%.200s: line %lld: prompt", o->file,
             (long long)list->items[i].line);
    status = tgi_generator_fits(g, name, list->items[i].prompt.count, error);
  }
  return status;
}

/* All prompts ran together: there is one time, of the whole. */
static void print_list_end(const tgi_prompt_batch *batch)
{
  const tgi_timings *t = &batch->sum;
  const size_t count = batch->prompts->count;
  fprintf(stderr,
          "load: %.0f ms | prompts: %lld tokens, %lld more shared | generated: %lld in %.1f ms "
          "(%.0f tok/s) | ended: %s%zu of %zu prompts\n",
          t->load_ms, (long long)t->prompt_n, (long long)t->cache_n, (long long)t->predicted_n,
          t->predicted_ms, t->predicted_ms > 0 ? 1e3 * (double)t->predicted_n / t->predicted_ms : 0,
          batch->done < count ? "interrupted after " : "", batch->done, count);
}

static tg_status run_list(const options *o, tgi_generator *g, const tgi_prompt_list *list,
                          tg_error *error)
{
  tgi_prompt_batch batch = {.generator = g,
                            .prompts = list,
                            .out = o->out,
                            .parallel = o->parallel,
                            .with_logprobs = o->logprobs >= 0,
                            .num_top = o->logprobs >= 0 ? o->logprobs : 0,
                            .sum = {.load_ms = 1e3 * g->load_seconds}};
  if (!o->quiet) {
    print_context(g);
  }
  tgi_interrupt_catch();
  const tg_status status = tgi_prompt_batch_run(&batch, error);
  if (status == TG_OK && !o->quiet) {
    print_list_end(&batch);
  }
  return status;
}

static tg_status generate_list(const options *o, tgi_generator *g, tg_error *error)
{
  tgi_prompt_list list = {0};
  tg_status status =
      tgi_prompt_list_read(o->file, g->tokenizer, &o->generation.numbers, &list, error);
  status = status ? status : make_room(o, g, &list, error);
  status = status ? status : run_list(o, g, &list, error);
  tgi_prompt_list_free(&list);
  return status;
}

/* ---- the command ---- */

/* Directory and prompt come by options or, those that do not, as arguments in this order. */
static int place_arguments(options *o, const tgi_parsed *given)
{
  int used = 0;
  if (!o->model && used < given->num_positions) {
    o->model = given->position[used++];
  }
  if (!o->prompt && used < given->num_positions) {
    o->prompt = given->position[used++];
  }
  if (used < given->num_positions) {
    return tgi_usage_error(&command_line, "expected DIR and PROMPT once, got an extra \"%s\"",
                           given->position[used]);
  }
  if (!o->model) {
    return tgi_usage_error(&command_line, "expected DIR or --model DIR, got neither");
  }
  const int prompts = (o->prompt != NULL) + (o->tokens != NULL) + (o->file != NULL);
  if (prompts != 1) {
    return tgi_usage_error(&command_line, "expected one of PROMPT, --file and --tokens, got %s",
                           prompts == 0   ? "neither"
                           : prompts == 2 ? "both"
                                          : "all of them");
  }
  return 0;
}

static bool is_list(const char *file)
{
  static const char kEnd[] = ".jsonl";
  const size_t size = file ? strlen(file) : 0;
  return size >= sizeof kEnd - 1 && strcmp(file + size - (sizeof kEnd - 1), kEnd) == 0;
}

static int check_output(const options *o)
{
  if (is_list(o->file) && !o->out) {
    return tgi_usage_error(&command_line, "expected --out FILE for the results of %s, got none",
                           o->file);
  }
  if (o->out && !is_list(o->file)) {
    return tgi_usage_error(&command_line, "--out: expected prompts in --file FILE.jsonl, got %s",
                           o->file ? o->file : "none");
  }
  if (o->out && tgi_same_file(o->file, o->out)) {
    return tgi_usage_error(&command_line, "--out: expected another file than --file, got %s",
                           o->out);
  }
  if (o->json && o->out) {
    return tgi_usage_error(&command_line, "expected one of --json and --out, got both");
  }
  if (o->echo && (o->json || o->out)) {
    return tgi_usage_error(&command_line, "--echo: expected text output, got %s",
                           o->json ? "--json" : "--out");
  }
  if (o->logprobs >= 0 && !o->json && !o->out) {
    return tgi_usage_error(&command_line, "--logprobs: expected --json or --out too, got neither");
  }
  if (o->generation.stop.count > 0 && o->tokens) {
    return tgi_usage_error(&command_line, "--stop: expected a prompt that is text, got --tokens");
  }
  return 0;
}

int tgi_generate_command(int argc, char **argv)
{
  options o = {.logprobs = -1, .parallel = 16, .generation = tgi_generation_defaults()};
  tgi_generator g = {0};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  int code = place_arguments(&o, &given);
  code = code ? code : check_output(&o);
  code = code ? code : tgi_generation_check(&command_line, &o.generation);
  if (code != 0) {
    return code;
  }
  tg_status status = tgi_generator_load(&g, o.model, o.tokens != NULL, &o.generation, &command_line,
                                        &given, &error);
  if (status == TG_OK) {
    status = o.out ? generate_list(&o, &g, &error) : generate_one(&o, &g, &error);
  }
  code = tgi_interrupted();
  if (status != TG_OK) {
    fflush(stdout);
    code = tgi_console_fail_with(kName, &error);
  }
  tgi_generator_close(&g);
  return code;
}
