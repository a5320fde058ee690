/** What was said so far: the messages that a template is given, and that /save writes. */
#ifndef TGI_CLI_CHAT_HISTORY_H
#define TGI_CLI_CHAT_HISTORY_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct tgi_message {
  const char *role;        /* "system", "user" or "assistant" */
  char *content, *thought; /* terminated; no thought: NULL */
  size_t content_size, thought_size;
} tgi_message;

/** Starts zeroed. A system message is the first one. */
typedef struct tgi_chat_history {
  tgi_message *messages;
  size_t count, room;
} tgi_chat_history;

/** Bytes of UTF-8; no text is NULL. */
typedef struct tgi_said {
  const char *bytes;
  size_t size;
} tgi_said;

/** The operator's text, or NULL for none, in the place of the one before. Errors: NO_MEMORY,
 * BAD_ARGUMENT (no UTF-8); the conversation then stays as it was, in every function here. */
tg_status tgi_chat_history_set_system(tgi_chat_history *c, const char *text, tg_error *error);

/** The text of the operator; NULL: none. */
const char *tgi_chat_history_system(const tgi_chat_history *c);

tg_status tgi_chat_history_ask(tgi_chat_history *c, tgi_said question, tg_error *error);

/** An answer without a thought has no bytes of one. */
tg_status tgi_chat_history_answer(tgi_chat_history *c, tgi_said answer, tgi_said thought,
                                  tg_error *error);

/** Takes back the last question and its answer; false if there is none. */
bool tgi_chat_history_undo(tgi_chat_history *c);

/** Forgets all but the operator's text. */
void tgi_chat_history_reset(tgi_chat_history *c);

/** The messages as a JSON list, for tgi_json_free_text. */
tg_status tgi_chat_history_text(const tgi_chat_history *c, char **text, tg_error *error);

/** The same in a file, which appears whole or not at all. Errors: IO, NO_MEMORY. */
tg_status tgi_chat_history_save(const tgi_chat_history *c, const char *path, tg_error *error);

/**
 * The messages of such a file: a JSON list of objects with role (system, user, assistant), content
 * and maybe reasoning_content, and no other keys, which would be lost. Replaces what is there.
 * Errors: IO, BAD_FILE, NO_MEMORY.
 */
tg_status tgi_chat_history_load(tgi_chat_history *c, const char *path, tg_error *error);

void tgi_chat_history_free(tgi_chat_history *c);

#endif
