/** Where the assistant's answers stand in a conversation whose template does not mark them. */
#ifndef TGI_DATA_ANSWER_SPANS_H
#define TGI_DATA_ANSWER_SPANS_H

#include "conversation_tokens.h"

/** Starts zeroed; the list is to be freed. */
typedef struct tgi_answers {
  tg_byte_range *list;
  size_t count, capacity;
} tgi_answers;

/**
 * Finds the answers in `whole`, which was rendered of all messages, with reader->tokens as its ids.
 *
 * The messages before an answer are rendered with the beginning of an answer, and then the messages
 * up to the answer. If these texts begin `whole`, the answer is what the second has more, up to the
 * last special token. Templates may render a turn in another way once others follow, as without its
 * thoughts. The answer's header is then looked for token by token, behind the answer before, and
 * its end is the first token that ended it when it was the last, or else the last special token
 * before the next header. No answer may hold text of users or tools.
 *
 * Errors: BAD_FILE naming line and message (an answer is not found), NO_MEMORY.
 */
tg_status tgi_find_answers(const tgi_chat_reader *reader, const tgi_chat_parts *parts,
                           const tg_chat_text *whole, tgi_answers *answers, tg_error *error);

#endif
