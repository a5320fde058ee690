#include "token_lists.h"
#include "core/growing.h"
#include "files/file_error.h"
#include "files/utf8.h"
#include <string.h>

/* ---- the vocabulary ---- */

static tg_status insert(tgi_json_scan *scan, tgi_vocabulary *v, size_t at, tgi_json_string name,
                        int64_t id)
{
  if (name.size == 0) {
    return tgi_json_scan_refuse(scan, at, "names that are not empty");
  }
  switch (tgi_vocabulary_insert(v, name.bytes, name.size, (int32_t)id, TG_TOKEN_ORDINARY)) {
  case TGI_INSERTED:
    return TG_OK;
  case TGI_NAME_TAKEN:
    return tgi_json_scan_refuse(scan, at, "each name once");
  case TGI_ID_TAKEN:
    return tgi_json_scan_refuse(scan, at, "a name for an id that no other has");
  default:
    return tgi_file_error_memory(scan->error, scan->path, v->arena_size + name.size);
  }
}

tg_status tgi_read_vocabulary(tgi_json_scan *scan, size_t count, tgi_vocabulary *v)
{
  if (!tgi_vocabulary_reserve(v, count)) {
    return tgi_file_error_memory(scan->error, scan->path, count * sizeof *v->slots);
  }
  if (!tgi_json_scan_take(scan, '{')) {
    return tgi_json_scan_refuse(scan, scan->at, "an object");
  }
  if (tgi_json_scan_take(scan, '}')) {
    return TG_OK;
  }
  do {
    const size_t at = tgi_json_scan_next(scan);
    tgi_json_string name;
    int64_t id = 0;
    tg_status status = tgi_json_scan_string(scan, &name);
    if (status == TG_OK && !tgi_json_scan_take(scan, ':')) {
      status = tgi_json_scan_refuse(scan, scan->at, "a colon");
    }
    status = status ? status : tgi_json_scan_integer(scan, TGI_MAX_IDS - 1, &id);
    status = status ? status : insert(scan, v, at, name, id);
    if (status != TG_OK) {
      return status;
    }
  } while (tgi_json_scan_take(scan, ','));
  return tgi_json_scan_take(scan, '}') ? TG_OK
                                       : tgi_json_scan_refuse(scan, scan->at, "a comma or a }");
}

/* ---- merges ---- */

/** The bytes of a pair, one behind the other. */
typedef struct pair {
  char *bytes;
  size_t capacity;
  size_t left, both; /* sizes */
  int32_t made;      /* what the pair before this one makes */
} pair;

/** Appends what a name spells. *spelled says whether it is in the byte alphabet. False: no memory.
 */
static bool add_name(pair *p, const char *name, size_t size, bool *spelled)
{
  char *grown = tgi_grow(p->bytes, &p->capacity, p->both + size, 1);
  if (!grown) {
    return false;
  }
  p->bytes = grown;
  size_t used = 0;
  *spelled = size > 0 && tgi_spelled_bytes(name, size, grown + p->both, &used);
  p->left = p->both;
  p->both += used;
  return true;
}

/** Whether the pair makes this token. */
static bool makes(const pair *p, const tgi_vocabulary *v, int32_t id)
{
  const tg_token token = tgi_vocabulary_token(v, id);
  return token.size == p->both && memcmp(token.bytes, p->bytes, p->both) == 0 &&
         v->tokens[id].spelled;
}

/** The token that the pair makes, or -1. In most files it is that of the pair before, or the next
 * one. */
static int32_t find_made(const pair *p, const tgi_vocabulary *v)
{
  for (int32_t id = p->made; id < p->made + 2; id++) {
    if (makes(p, v, id)) {
      return id;
    }
  }
  return tgi_vocabulary_find(v, p->bytes, p->both);
}

/** Adds the merge of the pair. Returns what is wrong with it, or NULL; *memory: it is short. */
static const char *add_pair(pair *p, const tgi_vocabulary *v, tgi_merge_table *table, uint32_t rank,
                            bool *memory)
{
  const int32_t left = tgi_vocabulary_find(v, p->bytes, p->left);
  const int32_t right = tgi_vocabulary_find(v, p->bytes + p->left, p->both - p->left);
  const int32_t both = find_made(p, v);
  if (left < 0 || right < 0) {
    return "a pair of tokens of the vocabulary";
  }
  if (both < 0) {
    return "a pair that makes a token of the vocabulary";
  }
  p->made = both;
  *memory = !tgi_merge_table_add(table, left, right, rank, both);
  return NULL;
}

static tg_status no_memory(const tgi_json_scan *scan, const pair *p, const tgi_merge_table *table)
{
  return tgi_file_error_memory(scan->error, scan->path,
                               p->capacity + table->num_slots * sizeof *table->slots + 16);
}

/** ["a", "b"], of which the [ is read. */
static tg_status listed_pair(tgi_json_scan *scan, pair *p, bool *spelled)
{
  for (int i = 0; i < 2; i++) {
    tgi_json_string name;
    bool also;
    tg_status status = tgi_json_scan_string(scan, &name);
    if (status == TG_OK && !add_name(p, name.bytes, name.size, &also)) {
      return tgi_file_error_memory(scan->error, scan->path, p->both + name.size);
    }
    if (status == TG_OK && !tgi_json_scan_take(scan, i == 0 ? ',' : ']')) {
      status = tgi_json_scan_refuse(scan, scan->at, "two names");
    }
    if (status != TG_OK) {
      return status;
    }
    *spelled = *spelled && also;
  }
  return TG_OK;
}

/** "a b" as two names; NULL unless there is exactly one space. */
static const char *find_space(const char *text, size_t size)
{
  const char *space = memchr(text, ' ', size);
  return space && !memchr(space + 1, ' ', (size_t)(text + size - space - 1)) ? space : NULL;
}

/** Both names of "a b". *spelled: it has two, in the byte alphabet. False: no memory. */
static bool add_names(pair *p, const char *text, size_t size, bool *spelled)
{
  const char *space = find_space(text, size);
  bool also = false;
  *spelled = false;
  if (!space) {
    return true;
  }
  if (!add_name(p, text, (size_t)(space - text), &also) ||
      !add_name(p, space + 1, (size_t)(text + size - space - 1), spelled)) {
    return false;
  }
  *spelled = *spelled && also;
  return true;
}

static tg_status read_pair(tgi_json_scan *scan, pair *p, bool *spelled)
{
  *spelled = true;
  if (tgi_json_scan_take(scan, '[')) {
    return listed_pair(scan, p, spelled);
  }
  tgi_json_string both;
  const tg_status status = tgi_json_scan_string(scan, &both);
  if (status == TG_OK && !add_names(p, both.bytes, both.size, spelled)) {
    return tgi_file_error_memory(scan->error, scan->path, p->both + both.size);
  }
  return status;
}

static const char kSpelled[] = "two names in the byte alphabet of byte-level BPE";

static tg_status read_merge(tgi_json_scan *scan, pair *p, const tgi_vocabulary *v,
                            tgi_merge_table *table, uint32_t rank)
{
  const size_t at = tgi_json_scan_next(scan);
  bool spelled, memory = false;
  p->left = p->both = 0;
  const tg_status status = read_pair(scan, p, &spelled);
  if (status != TG_OK) {
    return status;
  }
  const char *rule = spelled ? add_pair(p, v, table, rank, &memory) : kSpelled;
  if (memory) {
    return no_memory(scan, p, table);
  }
  return rule ? tgi_json_scan_refuse(scan, at, rule) : TG_OK;
}

tg_status tgi_read_merges(tgi_json_scan *scan, size_t strings, const tgi_vocabulary *v,
                          tgi_merge_table *table)
{
  if (!tgi_json_scan_take(scan, '[')) {
    return tgi_json_scan_refuse(scan, scan->at, "an array");
  }
  if (tgi_json_scan_take(scan, ']')) {
    return TG_OK;
  }
  const size_t first = tgi_json_scan_next(scan);
  const bool listed = first < scan->size && scan->text[first] == '[';
  if (!tgi_merge_table_reserve(table, listed ? strings / 2 : strings)) {
    return tgi_file_error_memory(scan->error, scan->path, strings * sizeof *table->slots);
  }
  pair p = {0};
  tg_status status = TG_OK;
  uint32_t rank = 0;
  do {
    status = read_merge(scan, &p, v, table, rank++);
  } while (status == TG_OK && tgi_json_scan_take(scan, ','));
  free(p.bytes);
  if (status == TG_OK && !tgi_json_scan_take(scan, ']')) {
    status = tgi_json_scan_refuse(scan, scan->at, "a comma or a ]");
  }
  return status;
}

static tg_status read_line(tgi_json_scan *scan, size_t size, pair *p, const tgi_vocabulary *v,
                           tgi_merge_table *table, uint32_t rank)
{
  const char *line = scan->text + scan->at;
  bool spelled = false, memory = false;
  const size_t valid = tgi_utf8_valid_bytes(line, size);
  if (valid < size) {
    return tgi_json_scan_refuse(scan, scan->at + valid, "UTF-8");
  }
  p->left = p->both = 0;
  memory = !add_names(p, line, size, &spelled);
  const char *rule = memory ? NULL : spelled ? add_pair(p, v, table, rank, &memory) : kSpelled;
  if (memory) {
    return no_memory(scan, p, table);
  }
  return rule ? tgi_json_scan_refuse(scan, scan->at, rule) : TG_OK;
}

tg_status tgi_read_merges_text(const char *path, const char *text, size_t size,
                               const tgi_vocabulary *v, tgi_merge_table *table, tg_error *error)
{
  static const char version[] = "#version";
  tgi_json_scan scan = {.path = path, .text = text, .size = size, .error = error};
  pair p = {0};
  tg_status status = TG_OK;
  uint32_t rank = 0;
  while (scan.at < size && status == TG_OK) {
    const char *newline = memchr(text + scan.at, '\n', size - scan.at);
    const size_t next = newline ? (size_t)(newline - text) + 1 : size;
    size_t length = next - scan.at - (newline != NULL);
    length -= length > 0 && text[scan.at + length - 1] == '\r';
    if (length < sizeof version - 1 || memcmp(text + scan.at, version, sizeof version - 1) != 0) {
      status = read_line(&scan, length, &p, v, table, rank++);
    }
    scan.at = next;
  }
  free(p.bytes);
  return status;
}
