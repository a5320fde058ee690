/**
 * A strict JSON reader (RFC 8259) for files that nobody vouches for.
 *
 * One pass checks the whole text and leaves an array of nodes that point into it; strings and
 * numbers are decoded when they are asked for. Every node knows its byte offset, so a wrong value
 * is reported where it stands, and the array is the only allocation, so running out of memory can
 * be nothing but NO_MEMORY.
 *
 * Refused: text that is not UTF-8, a byte-order mark, NaN and Infinity, lone surrogates, \u0000
 * (names end at it in C), duplicate keys (compared after unescaping), more than 127 levels,
 * anything after the value but white space. Numbers may be of any size; only the conversions have
 * ranges.
 */
#ifndef TGI_MODEL_JSON_READER_H
#define TGI_MODEL_JSON_READER_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tgi_json_kind {
  TGI_JSON_NULL,
  TGI_JSON_FALSE,
  TGI_JSON_TRUE,
  TGI_JSON_NUMBER,
  TGI_JSON_STRING,
  TGI_JSON_ARRAY,
  TGI_JSON_OBJECT,
} tgi_json_kind;

/** A value, or the key before a member's value. */
typedef struct tgi_json_node {
  uint32_t begin; /* first byte in the text; a string's is its quote */
  uint32_t end;   /* one past the last byte */
  uint32_t next;  /* index of the node after this one and all that it holds */
  uint32_t kind;  /* tgi_json_kind */
} tgi_json_node;

typedef struct tgi_json {
  const char *path; /* borrowed, for messages */
  const char *text; /* borrowed */
  uint64_t base;    /* file offset of text[0] */
  tgi_json_node *nodes;
  uint32_t count;
} tgi_json;

/** Nodes are named by index; the document's value is 0, so 0 also says "none" of a child or member.
 */
#define TGI_JSON_ROOT 0u

/**
 * Reads `size` bytes at `text`, which with `path` must outlive *json; `base` is added to the byte
 * offsets of messages. Errors: BAD_FILE, NO_MEMORY; then nothing needs freeing. The text may have
 * at most 2^31 - 1 bytes.
 */
tg_status tgi_json_read(const char *path, const char *text, size_t size, uint64_t base,
                        tgi_json *json, tg_error *error);

/** Frees the nodes of a document that was read; a zeroed one is allowed. */
void tgi_json_free(tgi_json *json);

tgi_json_kind tgi_json_kind_of(const tgi_json *json, uint32_t node);

/** File offset of the node's first byte. */
uint64_t tgi_json_byte(const tgi_json *json, uint32_t node);

/**
 * The first node inside an array or object and the one after `node` inside `parent`; 0 at the end.
 * In an object, keys and values alternate: the value of a key is key + 1, and the next key comes
 * after that value.
 */
uint32_t tgi_json_first(const tgi_json *json, uint32_t parent);
uint32_t tgi_json_next(const tgi_json *json, uint32_t parent, uint32_t node);

/** The value of a key in an object; 0 where the object lacks it (or `object` is no object). */
uint32_t tgi_json_member(const tgi_json *json, uint32_t object, const char *key);

/** Elements of an array or members of an object. */
uint32_t tgi_json_size(const tgi_json *json, uint32_t parent);

/** Bytes that a string's decoded form can take at most, without a terminator. */
size_t tgi_json_string_bound(const tgi_json *json, uint32_t node);

/** Decodes a string to `out` (bound + 1 bytes), terminates it and returns its length. */
size_t tgi_json_string(const tgi_json *json, uint32_t node, char *out);

/** Whether the node is a string equal to `text`. */
bool tgi_json_equals(const tgi_json *json, uint32_t node, const char *text);

/** Order of two strings' decoded bytes: below, at or above 0. */
int tgi_json_compare(const tgi_json *json, uint32_t a, uint32_t b);

/** A hash of a string's decoded bytes (FNV-1a, 32 bits). */
uint32_t tgi_json_hash(const tgi_json *json, uint32_t node);

/** True and *value, if the node is a number written without fraction or exponent that fits. */
bool tgi_json_int64(const tgi_json *json, uint32_t node, int64_t *value);

/** True and *value, if the node is a number with a finite nearest double. */
bool tgi_json_double(const tgi_json *json, uint32_t node, double *value);

/** Fills: `<path>: byte <of node>: expected <rule>, got <the node's text, cut and escaped>`. */
void tgi_json_fill_unexpected(const tgi_json *json, uint32_t node, tg_error *error,
                              const char *rule, ...) __attribute__((format(printf, 4, 5)));

/** The same as an expression whose value is BAD_FILE. */
#define tgi_json_unexpected(json, node, ...)                                                       \
  (tgi_json_fill_unexpected(json, node, __VA_ARGS__), TG_BAD_FILE)

#endif
