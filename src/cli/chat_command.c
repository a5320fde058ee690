/* tegula chat: a conversation with a model, in the words of its own template. */
#include "chat/chat_dialogue.h"
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "core/machine/environment.h"
#include "files/hub_name.h"
#include "files/json_file.h"
#include "generate/generator.h"
#include "interrupt.h"
#include "template_options.h"
#include "text_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kName[] = "tegula chat";

typedef struct options {
  const char *model, *prompt, *system, *load;
  bool thinking, no_thinking, hide_thinking, trust_content, statistics;
  tgi_template_options of_template;
  tgi_generation_options generation;
} options;

#define ROW(name, letter, field, argument, kind, help)                                             \
  {                                                                                                \
    name, argument, TGI_AT(options, field), 0, 0, help, TGI_OPTION_##kind, letter                  \
  }

static const tgi_option rows[] = {
    ROW("model", 'm', model, "DIR", TEXT, "the model, instead of DIR"),
    ROW("prompt", 'p', prompt, "TEXT", TEXT,
        "answer this one question and end; \"-\": that of standard input"),
    ROW("system", 0, system, "TEXT", TEXT, "the system message"),
    ROW("load", 0, load, "FILE", TEXT, "go on with a conversation that /save wrote"),
    ROW("thinking", 0, thinking, NULL, FLAG, "the same as --template-arg enable_thinking=true"),
    ROW("no-thinking", 0, no_thinking, NULL, FLAG,
        "the same as --template-arg enable_thinking=false"),
    ROW("hide-thinking", 0, hide_thinking, NULL, FLAG, "do not show what the model thinks"),
    ROW("trust-content", 0, trust_content, NULL, FLAG,
        "let the text of special tokens in questions become such tokens"),
    ROW("stats", 0, statistics, NULL, FLAG, "print statistics behind each answer"),
    TGI_TEMPLATE_ROWS(options, of_template),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula chat",
    .positions = "[DIR]",
    .help =
        "Talk with the model in a Hugging Face directory.\vAnswers go to standard output, "
        "everything else goes to standard error. /help lists the commands of a chat. Ctrl-C ends "
        "an answer; at the prompt it ends the program with exit code 130, and Ctrl-D with 0. "
        "Where standard input is no terminal, it is read to its end as one question.",
    .options = rows,
    .most_positions = 1,
    .shared = tgi_generation_rows,
    .shared_at = TGI_AT(options, generation),
};

typedef struct program {
  options o;
  tgi_model_path path; /* of the model */
  tg_chat_template *chat_template;
  tgi_generator generator;
  char *arguments;
  int32_t *stops;
  bool asks_once;
  tgi_text_input question; /* of standard input */
  tgi_said said;           /* the one question */
  tgi_chat chat;
} program;

/* ---- the command line ---- */

static int place_arguments(options *o, const tgi_parsed *given)
{
  if (o->model && given->num_positions > 0) {
    return tgi_usage_error(&command_line, "expected DIR once, got an extra \"%s\"",
                           given->position[0]);
  }
  o->model = o->model ? o->model : given->position[0];
  if (!o->model) {
    return tgi_usage_error(&command_line, "expected DIR or --model DIR, got neither");
  }
  if (o->thinking && o->no_thinking) {
    return tgi_usage_error(&command_line, "expected one of --thinking and --no-thinking, got both");
  }
  if ((o->thinking || o->no_thinking) && o->of_template.arguments.count == TGI_MAX_LISTED) {
    return tgi_usage_error(&command_line, "--template-arg: expected at most %d beside --thinking",
                           TGI_MAX_LISTED - 1);
  }
  const int code = tgi_template_check(&command_line, &o->of_template);
  return code ? code : tgi_generation_check(&command_line, &o->generation);
}

/* ---- the question ---- */

/** Without the line break at its end. */
static tgi_said one_question(const char *text, size_t size)
{
  size -= size > 0 && text[size - 1] == '\n';
  size -= size > 0 && text[size - 1] == '\r';
  return (tgi_said){text, size};
}

static tg_status read_question(program *p, tg_error *error)
{
  const bool given = p->o.prompt && strcmp(p->o.prompt, "-") != 0;
  p->asks_once = p->o.prompt || !isatty(STDIN_FILENO);
  if (given) {
    p->said = (tgi_said){p->o.prompt, strlen(p->o.prompt)};
  }
  if (given || !p->asks_once) {
    return TG_OK;
  }
  const tg_status status = tgi_text_input_open(NULL, &p->question, error);
  if (status != TG_OK) {
    return status;
  }
  p->said = one_question(p->question.text, p->question.size);
  return p->said.size > 0 ? TG_OK
                          : tgi_error_set(error, TG_BAD_ARGUMENT,
                                          "standard input: expected a question, got none");
}

/* ---- what turns need ---- */

static tg_status read_template(program *p, tg_error *error)
{
  tgi_template_options *t = &p->o.of_template;
  tg_status status = tg_chat_template_load(p->path.text, t->source, &p->chat_template, error);
  if (status != TG_OK) {
    return status;
  }
  if (p->o.thinking || p->o.no_thinking) {
    if (!tg_chat_template_mentions(p->chat_template, "enable_thinking")) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "%s: expected a template with enable_thinking, got one without",
                           p->o.thinking ? "--thinking" : "--no-thinking");
    }
    t->arguments.items[t->arguments.count++] =
        p->o.thinking ? "enable_thinking=true" : "enable_thinking=false";
  }
  return tgi_template_arguments(&t->arguments, &p->arguments, error);
}

/** The texts that end a turn: those given, and the template's where it is no token. */
static tg_status list_stop_strings(program *p, const tgi_end_mark *end, tg_error *error)
{
  const tgi_option_list *given = &p->o.generation.stop;
  const char *texts[TGI_MAX_LISTED + 1];
  size_t count = 0;
  for (int i = 0; i < given->count; i++) {
    texts[count++] = given->items[i];
  }
  if (end->text[0] && !p->o.generation.ignore_eos) {
    texts[count++] = end->text;
  }
  return tgi_stop_strings_create(texts, count, &p->chat.stops, error);
}

/** The ids that end a turn: the model's, the tokenizer's and the template's. */
static tg_status list_stops(program *p, tg_error *error)
{
  tg_generate_options *how = &p->chat.how;
  const tgi_end_mark end = tgi_chat_end_mark(&p->chat.form);
  const int32_t more[2] = {tg_tokenizer_special(p->generator.tokenizer, "eos_token"), end.id};
  p->stops = malloc(((size_t)how->num_stop_ids + 2) * sizeof *p->stops);
  if (!p->stops) {
    return tgi_error_set(error, TG_NO_MEMORY, "chat: expected room for %lld ids, got none",
                         (long long)how->num_stop_ids + 2);
  }
  int64_t n = 0;
  for (; n < how->num_stop_ids; n++) {
    p->stops[n] = how->stop_ids[n];
  }
  for (int i = 0; i < 2 && !p->o.generation.ignore_eos; i++) {
    if (more[i] >= 0) {
      p->stops[n++] = more[i];
    }
  }
  how->stop_ids = p->stops;
  how->num_stop_ids = n;
  return list_stop_strings(p, &end, error);
}

static tg_status start_conversation(program *p, tg_error *error)
{
  tg_status status = TG_OK;
  if (p->o.load) {
    status = tgi_chat_history_load(&p->chat.conversation, p->o.load, error);
  }
  if (status == TG_OK && p->o.system) {
    status = tgi_chat_history_set_system(&p->chat.conversation, p->o.system, error);
  }
  return status;
}

/** The context may grow up to the model's positions; a single question has no lines of commands. */
static const char *advice(const program *p)
{
  const bool grows = tg_session_capacity(p->generator.session) <
                     tg_model_get_info(p->generator.model).max_position_embeddings;
  return p->asks_once ? (grows ? "a larger --ctx makes room" : "the model has no more positions")
         : grows      ? "/reset, /undo or a larger --ctx make room"
                      : "/reset or /undo make room";
}

static tg_status start_session(program *p, const tgi_parsed *given, tg_error *error)
{
  tgi_generator *g = &p->generator;
  tgi_generation_options *o = &p->o.generation;
  tg_status status = tgi_generator_load(g, p->path.text, false, o, &command_line, given, error);
  if (status != TG_OK) {
    return status;
  }
  p->chat.form = (tgi_chat_form){.chat_template = p->chat_template,
                                 .tokenizer = g->tokenizer,
                                 .name = p->o.of_template.name,
                                 .date = p->o.of_template.date,
                                 .arguments = p->arguments,
                                 .trust_content = p->o.trust_content};
  p->chat.how = tgi_generation_how(o, &o->numbers, &g->bias, g->model);
  status = list_stops(p, error);
  status = status ? status : tgi_generator_open(g, error);
  p->chat.timeline.session = g->session;
  p->chat.advice = status ? NULL : advice(p);
  return status;
}

static tg_status prepare(program *p, const tgi_parsed *given, tg_error *error)
{
  const bool terminal = isatty(STDOUT_FILENO);
  p->chat.style = (tgi_spoken_style){.terminal = terminal,
                                     .dims = terminal && !tgi_environment_dumb_terminal() &&
                                             !tgi_environment_no_color(),
                                     .hides = p->o.hide_thinking};
  tg_status status = read_question(p, error);
  status = status ? status : tgi_model_path_find(p->o.model, &p->path, error);
  status = status ? status : read_template(p, error);
  status = status ? status : start_conversation(p, error);
  return status ? status : start_session(p, given, error);
}

/* ---- the command ---- */

static int run(program *p)
{
  const tgi_terminal_kind kind = tgi_terminal_open(!p->asks_once);
  int code;
  if (p->asks_once) {
    code = tgi_chat_once(&p->chat, p->said, p->o.statistics);
  } else {
    const tg_session *session = p->chat.timeline.session;
    fprintf(stderr, "context: %lld tokens (%s); /help lists commands, Ctrl-D ends\n",
            (long long)tg_session_capacity(session),
            tgi_generation_limit(&p->o.generation, p->generator.model, tg_session_capacity(session),
                                 0));
    code = tgi_chat_dialogue(&p->chat, kind, p->o.statistics);
  }
  tgi_terminal_close();
  return code;
}

static void release(program *p)
{
  tgi_timeline_free(&p->chat.timeline);
  tgi_chat_history_free(&p->chat.conversation);
  tgi_stop_strings_destroy(p->chat.stops);
  tgi_generator_close(&p->generator);
  tg_chat_template_destroy(p->chat_template);
  tgi_json_free_text(p->arguments);
  tgi_text_input_close(&p->question);
  free(p->stops);
}

int tgi_chat_command(int argc, char **argv)
{
  program p = {.o = {.generation = tgi_generation_defaults()}};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &p.o, &given);
  int code = place_arguments(&p.o, &given);
  if (code != 0) {
    return code;
  }
  if (prepare(&p, &given, &error) == TG_OK) {
    code = run(&p);
  } else {
    code = tgi_console_fail_with(kName, &error);
  }
  release(&p);
  return code;
}
