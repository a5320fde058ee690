/* tegula: dispatches to the subcommands. */
#include "command.h"
#include "console.h"
#include "option_table.h"
#include "tegula/context.h"

#include <argp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct subcommand {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help;
} subcommand;

static const subcommand subcommands[] = {
    {"train", tgi_train_command, "train a model on a text file"},
    {"generate", tgi_generate_command, "generate text with a model"},
    {"chat", tgi_chat_command, "talk with a model"},
    {"tokenize", tgi_tokenize_command, "encode text with a model's tokenizer"},
    {"detokenize", tgi_detokenize_command, "decode ids with a model's tokenizer"},
    {"convert", tgi_convert_command, "write a model in another dtype or in shards"},
    {"info", tgi_info_command, "describe this machine, its kernels, and a model directory"},
    {"bench", tgi_bench_command, "time training steps, prefill and decoding"},
    {"explain", tgi_explain_command, "show how an op runs a shape, and what bounds its time"},
    {"tune", tgi_tune_command, "measure which kernels run products fastest on this GPU"},
    {"template", tgi_template_command, "render a conversation by a model's chat template"},
};

enum { kSubcommands = sizeof subcommands / sizeof subcommands[0] };

static void print_usage(FILE *out)
{
  fputs("Usage: tegula COMMAND [OPTION...]\n\n", out);
  for (int i = 0; i < kSubcommands; i++) {
    fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
  }
  fputs("\n`tegula help COMMAND' lists a command's options; `tegula --version' prints the "
        "version.\n",
        out);
}

static void print_version(FILE *out, struct argp_state *state)
{
  (void)state;
  fprintf(out, "tegula %s\n", tg_version());
}

static const subcommand *find(const char *name)
{
  for (int i = 0; i < kSubcommands; i++) {
    if (strcmp(subcommands[i].name, name) == 0) {
      return &subcommands[i];
    }
  }
  return NULL;
}

/* Whether the word stands for "help", or for "version": as an option, a letter or a command. */
static bool asks_for(const char *word, const char *what, const char *letters)
{
  const bool letter = word[0] == '-' && word[1] && strchr(letters, word[1]) && !word[2];
  return letter || strcmp(word, what) == 0 ||
         (strncmp(word, "--", 2) == 0 && strcmp(word + 2, what) == 0);
}

static int unknown(const char *name)
{
  char got[128] = "none";
  if (name) {
    snprintf(got, sizeof got, "\"%.100s\"", name);
  }
  (void)tgi_console_fail("tegula", "expected a command, got %s", got);
  fputc('\n', stderr);
  print_usage(stderr);
  return TGI_EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
  if (argc < 2) {
    return unknown(NULL);
  }
  if (asks_for(argv[1], "version", "V")) {
    print_version(stdout, NULL);
    return 0;
  }
  if (!asks_for(argv[1], "help", "h?")) {
    const subcommand *command = find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
  }
  if (argc == 2) {
    print_usage(stdout);
    return 0;
  }
  static char option[] = "--help";
  char *help[] = {argv[2], option, NULL};
  const subcommand *command = find(argv[2]);
  return command ? command->run(2, help) : unknown(argv[2]);
}

int main(int argc, char **argv)
{
  /* Globals of argp. */
  argp_program_version_hook = print_version;
  argp_err_exit_status = TGI_EXIT_USAGE;
  /* A closed pipe must not kill the process: a training run whose progress is piped into `head`
   * continues. tgi_console_finish finds the write error when it flushes the output. */
  (void)signal(SIGPIPE, SIG_IGN);
  return tgi_console_finish("tegula", dispatch(argc, argv));
}
