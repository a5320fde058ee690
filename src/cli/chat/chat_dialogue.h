/** Turns of a chat, one or many, with what is said beside the answers on standard error. */
#ifndef TGI_CLI_CHAT_CHAT_DIALOGUE_H
#define TGI_CLI_CHAT_CHAT_DIALOGUE_H

#include "chat_terminal.h"
#include "chat_turn.h"

/** One question; returns the exit code. */
int tgi_chat_once(tgi_chat *chat, tgi_said question, bool statistics);

/** Questions and commands from the terminal to the end of input; returns the exit code. */
int tgi_chat_dialogue(tgi_chat *chat, tgi_terminal_kind kind, bool statistics);

#endif
