/** The subcommands of `tegula`. Each parses its own arguments (argv[0] is ignored) and returns the
 * exit code: 0 success, 1 failure, 2 wrong command line, 128 + signal if interrupted. */
#ifndef TGI_CLI_COMMAND_H
#define TGI_CLI_COMMAND_H

int tgi_train_command(int argc, char **argv);
int tgi_generate_command(int argc, char **argv);
int tgi_convert_command(int argc, char **argv);
int tgi_info_command(int argc, char **argv);
int tgi_bench_command(int argc, char **argv);
int tgi_explain_command(int argc, char **argv);
int tgi_tune_command(int argc, char **argv);
int tgi_tokenize_command(int argc, char **argv);
int tgi_detokenize_command(int argc, char **argv);
int tgi_template_command(int argc, char **argv);
int tgi_chat_command(int argc, char **argv);

#endif
