#include "timeline.h"

#include "core/error_record.h"
#include "core/growing.h"

/** Ids evaluated in one go: those of one pass of the session. */
enum { kPiece = 256 };

static int64_t common_prefix(const tgi_timeline *t, const int32_t *ids, int64_t count)
{
  int64_t n = 0;
  while (n < t->count && n < count && t->ids[n] == ids[n]) {
    n++;
  }
  return n;
}

tg_status tgi_timeline_note(tgi_timeline *t, int32_t id, tg_error *error)
{
  int32_t *grown = tgi_grow(t->ids, &t->room, (size_t)t->count + 1, sizeof *grown);
  if (!grown) {
    return tgi_error_set(error, TG_NO_MEMORY, "chat: expected room for %lld ids, got none",
                         (long long)t->count + 1);
  }
  t->ids = grown;
  t->ids[t->count++] = id;
  return TG_OK;
}

static tg_status feed(tgi_timeline *t, const int32_t *ids, int64_t count, tg_error *error)
{
  tg_status status = tg_session_feed(t->session, ids, count, error);
  for (int64_t i = 0; i < count && status == TG_OK; i++) {
    status = tgi_timeline_note(t, ids[i], error);
  }
  t->evaluated += status == TG_OK ? count : 0;
  return status;
}

tg_status tgi_timeline_set(tgi_timeline *t, const int32_t *ids, int64_t count, bool (*stops)(void),
                           bool *complete, tg_error *error)
{
  *complete = false;
  if (count < 1) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "chat: expected a prompt of ids, got none");
  }
  tgi_timeline_settle(t);
  const int64_t common = common_prefix(t, ids, count);
  t->kept = common < count ? common : count - 1;
  t->evaluated = 0;
  tg_status status = tg_session_truncate(t->session, t->kept);
  if (status != TG_OK) {
    return tgi_error_set(error, status, "chat: expected a session of at least %lld ids, got %lld",
                         (long long)t->kept, (long long)tg_session_length(t->session));
  }
  t->count = t->kept;
  while (status == TG_OK && t->count < count && !stops()) {
    const int64_t left = count - t->count;
    status = feed(t, ids + t->count, left < kPiece ? left : kPiece, error);
  }
  tgi_timeline_settle(t);
  *complete = status == TG_OK && t->count == count;
  return status;
}

void tgi_timeline_settle(tgi_timeline *t)
{
  const int64_t held = tg_session_length(t->session);
  t->count = t->count < held ? t->count : held;
}

void tgi_timeline_free(tgi_timeline *t)
{
  free(t->ids);
  *t = (tgi_timeline){0};
}
