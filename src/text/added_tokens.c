#include "added_tokens.h"
#include "core/growing.h"
#include "text/unicode/point_map.h"
#include <string.h>

/* ---- the contents as a trie ---- */

static uint32_t find_child(const tgi_added_tokens *set, uint32_t node, unsigned char byte)
{
  uint32_t child = set->nodes[node].child;
  while (child != 0 && set->nodes[child].byte != byte) {
    child = set->nodes[child].sibling;
  }
  return child;
}

/** A new node before the other children of `parent`; 0 without memory (and for the root). */
static uint32_t add_node(tgi_added_tokens *set, uint32_t parent, unsigned char byte)
{
  tgi_trie_node *grown =
      tgi_grow(set->nodes, &set->node_capacity, set->num_nodes + 1, sizeof *grown);
  if (!grown) {
    return 0;
  }
  set->nodes = grown;
  const uint32_t node = (uint32_t)set->num_nodes++;
  grown[node] = (tgi_trie_node){.token = -1, .byte = byte};
  if (node > 0) {
    grown[node].sibling = grown[parent].child;
    grown[parent].child = node;
  }
  return node;
}

static void note_start(tgi_added_tokens *set, unsigned char byte)
{
  const bool first = set->count == 0;
  set->only_start = first || set->only_start == byte ? byte : -1;
  set->starts[byte] = true;
}

bool tgi_added_tokens_add(tgi_added_tokens *set, const char *content, size_t size,
                          tgi_added_token token)
{
  if (set->num_nodes == 0) {
    add_node(set, 0, 0);
  }
  tgi_added_token *grown = tgi_grow(set->tokens, &set->capacity, set->count + 1, sizeof *grown);
  set->tokens = grown ? grown : set->tokens;
  if (!grown || set->num_nodes == 0) {
    return false;
  }
  uint32_t node = 0;
  for (size_t i = 0; i < size; i++) {
    const unsigned char byte = (unsigned char)content[i];
    const uint32_t child = find_child(set, node, byte);
    node = child != 0 ? child : add_node(set, node, byte);
    if (node == 0) {
      return false;
    }
  }
  note_start(set, (unsigned char)content[0]);
  grown[set->count] = token;
  if (set->nodes[node].token < 0) {
    set->nodes[node].token = (int32_t)set->count;
  }
  set->count++;
  return true;
}

void tgi_added_tokens_free(tgi_added_tokens *set)
{
  free(set->tokens);
  free(set->nodes);
  *set = (tgi_added_tokens){0};
}

/* ---- tokens in a text ---- */

/** The longest token that begins at `at` and ends at `limit` or before; *end is where. */
static int32_t match(const tgi_added_tokens *set, const char *text, size_t at, size_t limit,
                     size_t *end)
{
  int32_t best = -1;
  uint32_t node = 0;
  while (at < limit) {
    node = find_child(set, node, (unsigned char)text[at++]);
    if (node == 0) {
      break;
    }
    if (set->nodes[node].token >= 0) {
      best = set->nodes[node].token;
      *end = at;
    }
  }
  return best;
}

/** The next byte from `at` on that a content begins with, or `limit`. */
static size_t next_start(const tgi_added_tokens *set, const char *text, size_t at, size_t limit)
{
  if (set->only_start >= 0) {
    const char *found = memchr(text + at, set->only_start, limit - at);
    return found ? (size_t)(found - text) : limit;
  }
  while (at < limit && !set->starts[(unsigned char)text[at]]) {
    at++;
  }
  return at;
}

const tgi_added_token *tgi_added_tokens_next(tgi_token_walk *walk, size_t *begin, size_t *end)
{
  const tgi_added_tokens *set = walk->set;
  while (set->count > 0 && walk->at < walk->size) {
    while (walk->num_ranges > 0 &&
           (walk->ranges->end <= walk->at || walk->ranges->begin == walk->ranges->end)) {
      walk->ranges++;
      walk->num_ranges--;
    }
    size_t limit = walk->size;
    if (walk->num_ranges > 0 && walk->ranges->begin <= walk->at) {
      walk->at = walk->ranges->end;
      continue;
    }
    if (walk->num_ranges > 0 && walk->ranges->begin < limit) {
      limit = walk->ranges->begin;
    }
    while ((walk->at = next_start(set, walk->text, walk->at, limit)) < limit) {
      const int32_t token = match(set, walk->text, walk->at, limit, end);
      if (token >= 0) {
        *begin = walk->at;
        walk->at = *end;
        return &set->tokens[token];
      }
      walk->at++;
    }
  }
  return NULL;
}

/* ---- white space ---- */

/** The 25 code points of Unicode's White_Space. */
static bool is_space(uint32_t point)
{
  return (point >= 0x09 && point <= 0x0d) || point == 0x20 || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

size_t tgi_space_before(const char *text, size_t at)
{
  while (at > 0) {
    size_t before = at - 1;
    while (before > 0 && ((unsigned char)text[before] & 0xc0) == 0x80) {
      before--;
    }
    if (!is_space(tgi_point_at(text + before))) {
      break;
    }
    at = before;
  }
  return at;
}

size_t tgi_space_behind(const char *text, size_t at, size_t size)
{
  while (at < size && is_space(tgi_point_at(text + at))) {
    at += tgi_point_bytes((unsigned char)text[at]);
  }
  return at;
}
