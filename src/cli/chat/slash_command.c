#include "slash_command.h"

#include "cli/console.h"
#include "files/file_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula chat", kWhite[] = " \t\r\n";

/** `argument` is what follows the name, without white space at its ends. */
typedef struct slash_command {
  const char *name, *argument, *help;
  tgi_slash_result (*run)(tgi_conversation *c, const char *argument);
} slash_command;

static tgi_slash_result run_help(tgi_conversation *c, const char *argument);

static tgi_slash_result say(const char *text)
{
  fprintf(stderr, "%s\n", text);
  return TGI_SLASH_DONE;
}

static tgi_slash_result run_reset(tgi_conversation *c, const char *argument)
{
  (void)argument;
  tgi_conversation_reset(c);
  return say("the conversation begins anew");
}

static tgi_slash_result run_undo(tgi_conversation *c, const char *argument)
{
  (void)argument;
  return say(tgi_conversation_undo(c) ? "the last question and its answer are taken back"
                                      : "there is no question to take back");
}

static tgi_slash_result run_save(tgi_conversation *c, const char *path)
{
  tg_error error = {TG_OK, ""};
  if (!path[0]) {
    (void)tgi_console_fail(kName, "/save: expected FILE, got none");
  } else if (tgi_conversation_save(c, path, &error) != TG_OK) {
    (void)tgi_console_fail_with(kName, &error);
  } else {
    fprintf(stderr, "saved %zu messages to %s\n", c->count, tgi_quote(path, strlen(path)).text);
  }
  return TGI_SLASH_DONE;
}

static tgi_slash_result run_system(tgi_conversation *c, const char *text)
{
  tg_error error = {TG_OK, ""};
  if (tgi_conversation_set_system(c, text[0] ? text : NULL, &error) != TG_OK) {
    (void)tgi_console_fail_with(kName, &error);
    return TGI_SLASH_DONE;
  }
  return say(text[0] ? "the system message is set" : "there is no system message now");
}

static tgi_slash_result run_quit(tgi_conversation *c, const char *argument)
{
  (void)c;
  (void)argument;
  return TGI_SLASH_QUIT;
}

static const slash_command commands[] = {
    {"/reset", NULL, "forget all questions and answers", run_reset},
    {"/undo", NULL, "take back the last question and its answer", run_undo},
    {"/save", "FILE", "write the conversation as a JSON list of messages", run_save},
    {"/system", "TEXT", "put TEXT in the place of the system message; without it: none",
     run_system},
    {"/help", NULL, "this list", run_help},
    {"/quit", NULL, "end the program, as Ctrl-D does", run_quit},
};

enum { kCommands = sizeof commands / sizeof commands[0] };

static tgi_slash_result run_help(tgi_conversation *c, const char *argument)
{
  (void)c;
  (void)argument;
  for (int i = 0; i < kCommands; i++) {
    char usage[32];
    snprintf(usage, sizeof usage, "%s %s", commands[i].name,
             commands[i].argument ? commands[i].argument : "");
    fprintf(stderr, "  %-14s %s\n", usage, commands[i].help);
  }
  return say("Ctrl-C ends an answer, or the program where nothing was typed; Alt-Enter breaks a "
             "line. A space before a slash makes it a question.");
}

static const slash_command *find(const char *name, size_t size)
{
  for (int i = 0; i < kCommands; i++) {
    if (strlen(commands[i].name) == size && memcmp(commands[i].name, name, size) == 0) {
      return &commands[i];
    }
  }
  return NULL;
}

/** Runs it with a copy of what follows the name. */
static tgi_slash_result run(const slash_command *command, tgi_conversation *c, const char *rest)
{
  rest += strspn(rest, kWhite);
  if (rest[0] && !command->argument) {
    (void)tgi_console_fail(kName, "%s: expected nothing behind it, got %s", command->name,
                           tgi_quote(rest, strlen(rest)).text);
    return TGI_SLASH_DONE;
  }
  char *argument = strdup(rest);
  if (!argument) {
    (void)tgi_console_fail(kName, "%s: expected memory, got none", command->name);
    return TGI_SLASH_DONE;
  }
  size_t size = strlen(argument);
  while (size > 0 && strchr(kWhite, argument[size - 1])) {
    argument[--size] = '\0';
  }
  const tgi_slash_result result = command->run(c, argument);
  free(argument);
  return result;
}

tgi_slash_result tgi_slash_command(tgi_conversation *c, const char *line)
{
  if (line[0] != '/') {
    return TGI_SLASH_NONE;
  }
  const size_t size = strcspn(line, kWhite);
  const slash_command *command = find(line, size);
  if (command) {
    return run(command, c, line + size);
  }
  (void)tgi_console_fail(kName, "expected a command of /help, got %s; a space before it sends it",
                         tgi_quote(line, size).text);
  return TGI_SLASH_DONE;
}
