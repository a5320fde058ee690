/** The long lists of a tokenizer: its vocabulary and its merges, from JSON and from merges.txt. */
#ifndef TGI_TEXT_TOKEN_LISTS_H
#define TGI_TEXT_TOKEN_LISTS_H

#include "bpe/merge_table.h"
#include "bpe/vocabulary.h"
#include "files/json_scan.h"

/** {"name": id, ...} of some `count` names. Errors: BAD_FILE, NO_MEMORY. */
tg_status tgi_read_vocabulary(tgi_json_scan *scan, size_t count, tgi_vocabulary *v);

/**
 * ["a b", ...] or [["a", "b"], ...] of some `strings` strings: pairs of names whose names together
 * are a token too. Errors: BAD_FILE, NO_MEMORY.
 */
tg_status tgi_read_merges(tgi_json_scan *scan, size_t strings, const tgi_vocabulary *v,
                          tgi_merge_table *table);

/** Lines "a b"; those that begin with #version are passed over. Errors: BAD_FILE, NO_MEMORY. */
tg_status tgi_read_merges_text(const char *path, const char *text, size_t size,
                               const tgi_vocabulary *v, tgi_merge_table *table, tg_error *error);

#endif
