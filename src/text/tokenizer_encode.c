/*
 * Text becomes ids in the steps of Hugging Face's library: added tokens that are found in the text
 * as it is; what stands between them is normalised, piece by piece; added tokens that are found in
 * normalised text; what is left is cut by the patterns; each piece of that is merged.
 */
#include "bpe/merging.h"
#include "bpe/piece_cache.h"
#include "core/error_record.h"
#include "core/growing.h"
#include "files/utf8.h"
#include "tokenizer_state.h"
#include "unicode/late_points.h"
#include "unicode/nfc.h"
#include <string.h>

enum { kCacheFrom = 4096 }; /* bytes of text from which on a cache is worth its memory */

/** Where ids go: all are counted, those that fit are written. */
typedef struct id_sink {
  int32_t *ids;
  size_t count, capacity;
  bool grows; /* `ids` is our own block */
} id_sink;

typedef struct encoding {
  const tg_tokenizer *t;
  id_sink out;
  tgi_matches *matches;
  tgi_piece_cache *cache; /* NULL: none */
  tgi_merging merging;
  int32_t found; /* the id of a piece that is a token */
  tgi_nfc nfc;
  tgi_shown shown;
  const tg_text_range *ranges; /* of the text */
  size_t num_ranges;
  tg_text_range *moved; /* of the normalised text */
  size_t moved_capacity;
  tgi_spans *spans; /* NULL: not wanted */
  const char *part; /* what is cut: text[part_from ...), or what it became */
  size_t part_from;
  bool part_changed;
  bool plain;
  tg_status status; /* why a step returned false */
  tg_error *error;
} encoding;

static bool no_memory(encoding *e, size_t bytes)
{
  e->status = tgi_error_set(e->error, TG_NO_MEMORY,
                            "tokenizer_encode: expected %zu bytes of memory, got none", bytes);
  return false;
}

static bool put_ids(encoding *e, const int32_t *ids, size_t count)
{
  id_sink *out = &e->out;
  if (out->grows && out->count + count > out->capacity) {
    int32_t *grown = tgi_grow(out->ids, &out->capacity, out->count + count, sizeof *grown);
    if (!grown) {
      return no_memory(e, (out->count + count) * sizeof *grown);
    }
    out->ids = grown;
  }
  if (out->count + count <= out->capacity) {
    for (size_t i = 0; i < count; i++) { /* few: a call of memcpy would cost more */
      out->ids[out->count + i] = ids[i];
    }
  }
  out->count += count;
  return true;
}

/* ---- where ids come from ---- */

/** Where a place of a part stands in the text; an edit is taken as a whole. */
static size_t move_back(const encoding *e, size_t at, bool is_end)
{
  size_t moved = at;
  for (size_t i = 0; e->part_changed && i < e->nfc.num_edits; i++) {
    const tgi_nfc_edit *edit = &e->nfc.edits[i];
    if (is_end ? at <= edit->out_from : at < edit->out_from) {
      break;
    }
    if (is_end ? at <= edit->out_to : at < edit->out_to) {
      moved = is_end ? edit->to : edit->from;
      break;
    }
    moved = at - edit->out_to + edit->to;
  }
  return e->part_from + moved;
}

static bool put_span(encoding *e, size_t begin, size_t end)
{
  tgi_spans *spans = e->spans;
  tg_text_range *grown =
      tgi_grow(spans->list, &spans->capacity, spans->count + 1, sizeof *spans->list);
  if (!grown) {
    return no_memory(e, (spans->count + 1) * sizeof *grown);
  }
  spans->list = grown;
  grown[spans->count++] = (tg_text_range){begin, end};
  return true;
}

/** The spans of a piece's ids, which stand for its bytes one after another. */
static bool put_piece_spans(encoding *e, const char *bytes, const int32_t *ids, size_t count)
{
  size_t at = (size_t)(bytes - e->part);
  for (size_t i = 0; i < count; i++) {
    const size_t end = at + tgi_vocabulary_token(&e->t->vocabulary, ids[i]).size;
    if (!put_span(e, move_back(e, at, false), move_back(e, end, true))) {
      return false;
    }
    at = end;
  }
  return true;
}

static bool put_piece(encoding *e, const char *bytes, const int32_t *ids, size_t count)
{
  return put_ids(e, ids, count) && (!e->spans || put_piece_spans(e, bytes, ids, count));
}

/* ---- a piece ---- */

static bool merge(encoding *e, const char *bytes, size_t size, size_t *count)
{
  if (size > UINT32_MAX / 2) {
    e->status =
        tgi_error_set(e->error, TG_UNSUPPORTED,
                      "tokenizer_encode: text: expected a piece below 2^31 bytes, got %zu", size);
    return false;
  }
  *count = tgi_merge_piece(&e->merging, &e->t->merges, e->t->byte_ids, bytes, size);
  return *count > 0 || no_memory(e, 40 * size);
}

/** *ids and *count of a piece that is in no cache. */
static bool look_up(encoding *e, const char *bytes, size_t size, const int32_t **ids, size_t *count)
{
  const tg_tokenizer *t = e->t;
  const int32_t id = tgi_vocabulary_find(&t->vocabulary, bytes, size);
  unsigned whole = TGI_NOT_WHOLE;
  if (id >= 0) {
    whole = t->ignore_merges ? (unsigned)TGI_WHOLE
                             : atomic_load_explicit(&t->wholeness[id], memory_order_relaxed);
  }
  if (whole == TGI_WHOLE) {
    e->found = id;
    *ids = &e->found;
    *count = 1;
    return true;
  }
  if (!merge(e, bytes, size, count)) {
    return false;
  }
  *ids = e->merging.ids;
  if (whole == TGI_WHOLE_UNKNOWN) {
    const bool same = *count == 1 && (*ids)[0] == id;
    atomic_store_explicit(&t->wholeness[id], same ? TGI_WHOLE : TGI_NOT_WHOLE,
                          memory_order_relaxed);
  }
  return true;
}

/** Without merges: a text may be one piece, which takes no memory this way. */
static bool encode_bytes(encoding *e, const char *bytes, size_t size)
{
  bool done = true;
  for (size_t i = 0; i < size && done; i++) {
    done = put_piece(e, bytes + i, &e->t->byte_ids[(unsigned char)bytes[i]], 1);
  }
  return done;
}

static bool encode_piece(encoding *e, const char *bytes, size_t size)
{
  const int32_t *ids;
  size_t count;
  if (e->t->merges.count == 0 && !e->t->ignore_merges) {
    return encode_bytes(e, bytes, size);
  }
  if (!e->cache || size > TGI_CACHED_BYTES) {
    return look_up(e, bytes, size, &ids, &count) && put_piece(e, bytes, ids, count);
  }
  uint64_t words[2];
  tgi_cached_piece *place = tgi_piece_place(e->cache, bytes, size, words);
  if (place->words[0] == words[0] && place->words[1] == words[1]) {
    return put_piece(e, bytes, place->ids, place->count);
  }
  if (!look_up(e, bytes, size, &ids, &count)) {
    return false;
  }
  if (count <= TGI_CACHED_IDS) {
    *place = (tgi_cached_piece){.words = {words[0], words[1]}, .count = (uint32_t)count};
    memcpy(place->ids, ids, count * sizeof *ids);
  }
  return put_piece(e, bytes, ids, count);
}

/* ---- cutting ---- */

/** Cuts text[from, to) by the patterns from `level` on; `shown` is the text as classes see it. */
static bool cut(encoding *e, int level, const char *text, const char *shown, size_t size)
{
  if (level == e->t->num_patterns) {
    return encode_piece(e, text, size);
  }
  const tgi_pattern *pattern = e->t->patterns[level];
  const char *subject = tgi_pattern_has_classes(pattern) ? shown : text;
  for (size_t at = 0; at < size;) {
    size_t begin, end;
    const tgi_match found = tgi_pattern_find(pattern, e->matches, subject, size, at, &begin, &end);
    if (found == TGI_MATCH_TOO_HARD) {
      e->status = tgi_error_set(e->error, TG_UNSUPPORTED,
                                "tokenizer_encode: text: expected a pattern that PCRE2 finds "
                                "within its limit on steps, got none");
      return false;
    }
    if (found == TGI_MATCH_NONE) {
      begin = end = size;
    }
    if (begin > at && !cut(e, level + 1, text + at, shown + at, begin - at)) {
      return false;
    }
    if (end > begin && !cut(e, level + 1, text + begin, shown + begin, end - begin)) {
      return false;
    }
    at = end;
  }
  return true;
}

static bool cut_whole(encoding *e, const char *text, size_t size)
{
  const char *shown = text;
  if (e->t->late && !tgi_late_points_show(&e->shown, e->t->late, text, size, &shown)) {
    return no_memory(e, size);
  }
  return size == 0 || cut(e, 0, text, shown, size);
}

/* ---- added tokens ---- */

/** `text` is a part, or the text itself, of which there is no part while its tokens are found. */
static bool put_added(encoding *e, const char *text, const tgi_added_token *token, size_t begin,
                      size_t end)
{
  if (!put_ids(e, &token->id, 1)) {
    return false;
  }
  if (!e->spans) {
    return true;
  }
  const bool in_part = text == e->part;
  return put_span(e, in_part ? move_back(e, begin, false) : begin,
                  in_part ? move_back(e, end, true) : end);
}

/** Goes through a text by its added tokens; `rest` takes what stands between them, [from, to). */
static bool split_at_tokens(encoding *e, tgi_token_walk walk,
                            bool (*rest)(encoding *e, const char *text, size_t from, size_t to))
{
  const char *text = walk.text;
  size_t done = 0, begin, end;
  const tgi_added_token *token;
  while ((token = tgi_added_tokens_next(&walk, &begin, &end))) {
    /* White space behind the last token may hold this one, as Hugging Face's library has it. */
    if (token->lstrip) {
      const size_t space = tgi_space_before(text, begin);
      begin = space > done ? space : done;
    }
    if (token->rstrip) {
      end = tgi_space_behind(text, end, walk.size);
    }
    if (begin >= end) { /* it lies in white space that the last one took */
      continue;
    }
    if ((done < begin && !rest(e, text, done, begin)) ||
        !put_added(e, walk.text, token, begin, end)) {
      return false;
    }
    done = end;
  }
  return done >= walk.size || rest(e, text, done, walk.size);
}

static bool cut_between(encoding *e, const char *text, size_t from, size_t to)
{
  return cut_whole(e, text + from, to - from);
}

/** Where a place of the text stands in the normalised text; an edit is taken as a whole. */
static size_t move(const tgi_nfc *nfc, size_t at, bool is_end)
{
  size_t moved = at;
  for (size_t i = 0; i < nfc->num_edits && nfc->edits[i].from < at; i++) {
    const tgi_nfc_edit *edit = &nfc->edits[i];
    if (at < edit->to) {
      return is_end ? edit->out_to : edit->out_from;
    }
    moved = at - edit->to + edit->out_to;
  }
  return moved;
}

/** The ranges that reach into text[from, to), as they stand in what it became. An empty one holds
 * no byte, so it must not grow to the edit around it. */
static bool move_ranges(encoding *e, size_t from, size_t to, bool changed, size_t *count)
{
  *count = 0;
  for (size_t i = 0; i < e->num_ranges; i++) {
    const tg_text_range *range = &e->ranges[i];
    if (range->end <= from || range->begin >= to || range->begin == range->end) {
      continue;
    }
    tg_text_range *grown = tgi_grow(e->moved, &e->moved_capacity, *count + 1, sizeof *grown);
    if (!grown) {
      return no_memory(e, (*count + 1) * sizeof *grown);
    }
    e->moved = grown;
    const size_t begin = range->begin > from ? range->begin - from : 0;
    const size_t end = (range->end < to ? range->end : to) - from;
    grown[(*count)++] = (tg_text_range){changed ? move(&e->nfc, begin, false) : begin,
                                        changed ? move(&e->nfc, end, true) : end};
  }
  return true;
}

static bool normalise_between(encoding *e, const char *text, size_t from, size_t to)
{
  const tg_tokenizer *t = e->t;
  tgi_token_walk walk = {.set = &t->added_normalised, .text = text + from, .size = to - from};
  bool changed = false;
  if (t->nfc) {
    if (!tgi_nfc_normalise(&e->nfc, t->nfc, walk.text, walk.size, &changed)) {
      return no_memory(e, 3 * walk.size);
    }
    walk.text = changed ? e->nfc.text : walk.text;
    walk.size = changed ? e->nfc.size : walk.size;
  }
  e->part = walk.text;
  e->part_from = from;
  e->part_changed = changed;
  if (e->plain || walk.set->count == 0) {
    return cut_whole(e, walk.text, walk.size);
  }
  if (!move_ranges(e, from, to, changed, &walk.num_ranges)) {
    return false;
  }
  walk.ranges = e->moved;
  return split_at_tokens(e, walk, cut_between);
}

/* ---- a text ---- */

/** What the post-processor puts at `at`, for no byte of the text. */
static bool put_around(encoding *e, const tgi_around *around, size_t at)
{
  bool done = put_ids(e, around->ids, (size_t)around->count);
  for (int i = 0; i < around->count && done && e->spans; i++) {
    done = put_span(e, at, at);
  }
  return done;
}

static bool encode_text(encoding *e, const char *text, size_t size, bool add_special)
{
  const tg_tokenizer *t = e->t;
  const tgi_token_walk walk = {.set = &t->added,
                               .text = text,
                               .size = size,
                               .ranges = e->ranges,
                               .num_ranges = e->num_ranges};
  e->matches = tgi_matches_make();
  if (!e->matches) {
    return no_memory(e, sizeof(void *));
  }
  e->cache = size >= kCacheFrom ? tgi_piece_cache_make(size) : NULL; /* without one it is slower */
  if (add_special && !put_around(e, &t->before, 0)) {
    return false;
  }
  const bool done =
      e->plain ? normalise_between(e, text, 0, size) : split_at_tokens(e, walk, normalise_between);
  return done && (!add_special || put_around(e, &t->behind, size));
}

static tg_status check_ranges(const tg_text_range *ranges, size_t count, size_t size,
                              tg_error *error)
{
  size_t behind = 0;
  for (size_t i = 0; i < count; i++) {
    if (ranges[i].begin < behind || ranges[i].end < ranges[i].begin || ranges[i].end > size) {
      return tgi_error_set(
          error, TG_BAD_ARGUMENT,
          "tokenizer_encode: ranges[%zu]: expected a range from byte %zu on within "
          "%zu bytes, got %zu to %zu",
          i, behind, size, ranges[i].begin, ranges[i].end);
    }
    behind = ranges[i].end;
  }
  return TG_OK;
}

/** Encodes into e->out, whose block the caller has or gets. */
static tg_status run(encoding *e, const char *text, size_t size, uint32_t flags)
{
  if (flags & ~(TG_TOKENIZER_PLAIN | TG_TOKENIZER_ADD_SPECIAL)) {
    return tgi_error_set(e->error, TG_BAD_ARGUMENT,
                         "tokenizer_encode: flags: expected PLAIN, ADD_SPECIAL or neither, got %u",
                         flags);
  }
  const size_t valid = tgi_utf8_valid_bytes(text, size);
  if (valid < size) {
    return tgi_error_set(e->error, TG_BAD_ARGUMENT,
                         "tokenizer_encode: text: byte %zu: expected UTF-8, got 0x%02x", valid,
                         (unsigned char)text[valid]);
  }
  const tg_status status = check_ranges(e->ranges, e->num_ranges, size, e->error);
  if (status != TG_OK) {
    return status;
  }
  e->plain = flags & TG_TOKENIZER_PLAIN;
  const bool done = encode_text(e, text, size, flags & TG_TOKENIZER_ADD_SPECIAL);
  tgi_matches_free(e->matches);
  tgi_merging_free(&e->merging);
  tgi_nfc_free(&e->nfc);
  free(e->cache);
  free(e->shown.text);
  free(e->moved);
  return done ? TG_OK : e->status;
}

tg_status tg_tokenizer_encode_marked(const tg_tokenizer *t, const char *text, size_t size,
                                     const tg_text_range *ranges, size_t num_ranges, uint32_t flags,
                                     int32_t *ids, size_t capacity, size_t *count, tg_error *error)
{
  encoding e = {.t = t, .ranges = ranges, .num_ranges = num_ranges, .error = error};
  e.out.ids = ids;
  e.out.capacity = capacity;
  *count = 0;
  const tg_status status = run(&e, text, size, flags);
  if (status != TG_OK) {
    return status;
  }
  *count = e.out.count;
  if (capacity > 0 && capacity < *count) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "tokenizer_encode: capacity: expected at least %zu, got %zu", *count,
                         capacity);
  }
  return TG_OK;
}

tg_status tg_tokenizer_encode(const tg_tokenizer *t, const char *text, size_t size, uint32_t flags,
                              int32_t *ids, size_t capacity, size_t *count, tg_error *error)
{
  return tg_tokenizer_encode_marked(t, text, size, NULL, 0, flags, ids, capacity, count, error);
}

tg_status tgi_tokenizer_encode_all(const tg_tokenizer *t, const char *text, size_t size,
                                   uint32_t flags, int32_t **ids, size_t *count, tg_error *error)
{
  encoding e = {.t = t, .out = {.grows = true}, .error = error};
  const tg_status status = run(&e, text, size, flags);
  if (status != TG_OK) {
    free(e.out.ids);
    e.out = (id_sink){0};
  }
  *ids = e.out.ids;
  *count = e.out.count;
  return status;
}

tg_status tgi_tokenizer_encode_spans(const tg_tokenizer *t, const tgi_marked_text *text,
                                     uint32_t flags, tgi_spanned_ids *out, tg_error *error)
{
  encoding e = {.t = t,
                .out = {.ids = out->ids, .capacity = out->capacity, .grows = true},
                .ranges = text->ranges,
                .num_ranges = text->num_ranges,
                .spans = &out->spans,
                .error = error};
  out->spans.count = 0;
  const tg_status status = run(&e, text->bytes, text->size, flags);
  out->ids = e.out.ids;
  out->capacity = e.out.capacity;
  out->count = status == TG_OK ? e.out.count : 0;
  return status;
}

void tgi_spanned_ids_free(tgi_spanned_ids *out)
{
  free(out->ids);
  free(out->spans.list);
  *out = (tgi_spanned_ids){0};
}
