/* tegula: dispatches to the subcommands. */
#include "command.h"
#include "console.h"
#include "option_table.h"
#include "tegula/context.h"

#include <argp.h>
#include <signal.h>
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
    {"info", tgi_info_command, "describe this machine, its kernels, and a model directory"},
    {"bench", tgi_bench_command, "time training steps, prefill and decoding"},
    {"explain", tgi_explain_command, "show how an op runs a shape, and what bounds its time"},
    {"template", tgi_template_command, "render a conversation by a model's chat template"},
};

enum { kSubcommands = sizeof subcommands / sizeof subcommands[0] };

static void print_usage(FILE *out)
{
  fputs("Usage: tegula COMMAND [OPTION...]\n\n", out);
  for (int i = 0; i < kSubcommands; i++) {
    fprintf(out, "  %-9s %s\n", subcommands[i].name, subcommands[i].help);
  }
  fputs("\n`tegula COMMAND --help' lists a command's options; `tegula --version' prints the "
        "version.\n",
        out);
}

static void print_version(FILE *out, struct argp_state *state)
{
  (void)state;
  fprintf(out, "tegula %s\n", tg_version());
}

static int dispatch(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0 || strcmp(name, "help") == 0) {
    print_usage(stdout);
    return 0;
  }
  if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
    print_version(stdout, NULL);
    return 0;
  }
  for (int i = 0; i < kSubcommands; i++) {
    if (strcmp(subcommands[i].name, name) == 0) {
      return subcommands[i].run(argc - 1, argv + 1);
    }
  }
  fprintf(stderr, "tegula: expected a command, got \"%s\"\n\n", name);
  print_usage(stderr);
  return TGI_EXIT_USAGE;
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
