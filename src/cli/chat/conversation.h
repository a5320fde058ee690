/** What was said so far: the messages that a template is given, and that /save writes. */
#ifndef TGI_CLI_CHAT_CONVERSATION_H
#define TGI_CLI_CHAT_CONVERSATION_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct tgi_message {
  const char *role;        /* "system", "user" or "assistant" */
  char *content, *thought; /* terminated; no thought: NULL */
  size_t content_size, thought_size;
} tgi_message;

/** Starts zeroed. A system message is the first one. */
typedef struct tgi_conversation {
  tgi_message *messages;
  size_t count, room;
} tgi_conversation;

/** Bytes of UTF-8; no text is NULL. */
typedef struct tgi_said {
  const char *bytes;
  size_t size;
} tgi_said;

/** The operator's text, or NULL for none, in the place of the one before. Errors: NO_MEMORY,
 * BAD_ARGUMENT (no UTF-8); the conversation then stays as it was, in every function here. */
tg_status tgi_conversation_set_system(tgi_conversation *c, const char *text, tg_error *error);

/** The text of the operator; NULL: none. */
const char *tgi_conversation_system(const tgi_conversation *c);

tg_status tgi_conversation_ask(tgi_conversation *c, tgi_said question, tg_error *error);

/** An answer without a thought has no bytes of one. */
tg_status tgi_conversation_answer(tgi_conversation *c, tgi_said answer, tgi_said thought,
                                  tg_error *error);

/** Takes back the last question and its answer; false if there is none. */
bool tgi_conversation_undo(tgi_conversation *c);

/** Forgets all but the operator's text. */
void tgi_conversation_reset(tgi_conversation *c);

/** The messages as a JSON list, for tgi_json_free_text. */
tg_status tgi_conversation_text(const tgi_conversation *c, char **text, tg_error *error);

/** The same in a file, which appears whole or not at all. Errors: IO, NO_MEMORY. */
tg_status tgi_conversation_save(const tgi_conversation *c, const char *path, tg_error *error);

/**
 * The messages of such a file: a JSON list of objects with role (system, user, assistant), content
 * and maybe reasoning_content, and no other keys, which would be lost. Replaces what is there.
 * Errors: IO, BAD_FILE, NO_MEMORY.
 */
tg_status tgi_conversation_load(tgi_conversation *c, const char *path, tg_error *error);

void tgi_conversation_free(tgi_conversation *c);

#endif
