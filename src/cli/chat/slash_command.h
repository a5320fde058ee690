/** What a person tells the chat instead of the model: lines that begin with a slash. */
#ifndef TGI_CLI_CHAT_SLASH_COMMAND_H
#define TGI_CLI_CHAT_SLASH_COMMAND_H

#include "conversation.h"

typedef enum tgi_slash_result {
  TGI_SLASH_NONE, /* it is a question */
  TGI_SLASH_DONE,
  TGI_SLASH_QUIT,
} tgi_slash_result;

/**
 * Runs the command that `line`, terminated, begins with; what it did, or what is wrong, is said on
 * standard error. An unknown command is no question.
 */
tgi_slash_result tgi_slash_command(tgi_conversation *c, const char *line);

#endif
