/** The options that choose a chat template and its arguments, for every command that renders one.
 */
#ifndef TGI_CLI_TEMPLATE_OPTIONS_H
#define TGI_CLI_TEMPLATE_OPTIONS_H

#include "option_table.h"
#include "tegula/status.h"

typedef struct tgi_template_options {
  const char *source, *name, *date;
  tgi_option_list arguments; /* "key=JSON" each */
} tgi_template_options;

#define TGI_TEMPLATE_ROW(type, at, name, field, argument, kind, help)                              \
  {                                                                                                \
    name, argument, TGI_AT(type, at) + TGI_AT(tgi_template_options, field), 0, 0, help,            \
        TGI_OPTION_##kind, 0                                                                       \
  }

/** Rows of a table; `at` is the tgi_template_options in the command's struct `type`. */
#define TGI_TEMPLATE_ROWS(type, at)                                                                \
  TGI_TEMPLATE_ROW(type, at, "template", source, "SOURCE", TEXT,                                   \
                   "a template's file, chatml or llama3, instead of the directory's template"),    \
      TGI_TEMPLATE_ROW(                                                                            \
          type, at, "template-name", name, "NAME", TEXT,                                           \
          "which of several templates (tool_use where there are tools, else default)"),            \
      TGI_TEMPLATE_ROW(type, at, "template-arg", arguments, "KEY=JSON", LIST,                      \
                       "a variable of the template, enable_thinking=false or "                     \
                       "reasoning_effort='\"high\"' say; may be given several times"),             \
      TGI_TEMPLATE_ROW(type, at, "date", date, "DATE", TEXT,                                       \
                       "what the template takes for today: YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS "     \
                       "(now)")

/** 0, or TGI_EXIT_USAGE after a message: --template-arg and --date. */
int tgi_template_check(const tgi_command *command, const tgi_template_options *o);

/** One JSON object of all "key=JSON", for tgi_json_free_text. Errors: BAD_ARGUMENT, NO_MEMORY. */
tg_status tgi_template_arguments(const tgi_option_list *list, char **text, tg_error *error);

#endif
