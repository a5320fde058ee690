/** The subcommands of `tegula`: each takes its own arguments (argv[0] is ignored) and returns the
 * exit code: 0 done, 1 failed, 2 wrong command line, 130 interrupted. */
#ifndef TGI_CLI_COMMAND_H
#define TGI_CLI_COMMAND_H

int tgi_train_command(int argc, char **argv);
int tgi_generate_command(int argc, char **argv);
int tgi_info_command(int argc, char **argv);
int tgi_bench_command(int argc, char **argv);
int tgi_explain_command(int argc, char **argv);

#endif
