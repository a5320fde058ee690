/**
 * A session and the ids that it holds. A prompt that begins as the one before, as that of the next
 * turn does, is evaluated from the first id on that differs.
 */
#ifndef TGI_CLI_CHAT_TIMELINE_H
#define TGI_CLI_CHAT_TIMELINE_H

#include "tegula/model.h"

/** Zeroed but for the session, which is borrowed. */
typedef struct tgi_timeline {
  tg_session *session;
  int32_t *ids; /* those of the session, in order */
  size_t room;
  int64_t count;
  int64_t kept, evaluated; /* ids of the last prompt that were there, and that were not */
} tgi_timeline;

/**
 * Makes the timeline hold these ids, so that generating goes on behind them: cuts it to the longest
 * common prefix and evaluates the rest, the last id in any case. Between pieces of 256 ids `stops`
 * is called; where it says yes the call ends with TG_OK and *complete false, and the timeline holds
 * what was evaluated. Errors: those of tg_session_feed; likewise.
 */
tg_status tgi_timeline_set(tgi_timeline *t, const int32_t *ids, int64_t count, bool (*stops)(void),
                           bool *complete, tg_error *error);

/** Takes note of a generated id. Errors: NO_MEMORY. */
tg_status tgi_timeline_note(tgi_timeline *t, int32_t id, tg_error *error);

/** After generating: the session does not hold the last id, or none after a failure. */
void tgi_timeline_settle(tgi_timeline *t);

void tgi_timeline_free(tgi_timeline *t);

#endif
