/** What --train-file names, as tokens: read from text and conversations, from a cache of an earlier
 * run, or from files of ids. */
#ifndef TGI_DATA_CORPUS_H
#define TGI_DATA_CORPUS_H

#include "data_files.h"
#include "files/hash128.h"
#include "tegula/chat_template.h"
#include "tegula/tokenizer.h"
#include "token_store.h"
#include <jansson.h>

/** How files become tokens. */
typedef struct tgi_corpus_options {
  const tg_tokenizer *tokenizer;
  int32_t vocab_size;             /* ids of files of ids are below */
  const char *template_directory; /* whose template conversations use; NULL: none */
  const char *template_source;    /* as in tg_chat_template_load; NULL: the directory's */
  const char *template_name;
  const char *date; /* for templates that ask for today's; required for conversations */
  const json_t *template_arguments; /* an object; NULL: none */
  const char *cache_directory;      /* NULL: no cache; tokens are then kept in memory */
  const char *log;                  /* a file that will be written: no data; NULL: none */
  bool trust;                       /* text of users and tools may become control tokens */
  bool join;      /* ends every conversation by the end token, where it does not end so */
  bool documents; /* documents are looked for in files of ids too */
} tgi_corpus_options;

enum { TGI_CACHE_PATH_BYTES = 4096, TGI_CORPUS_NOTE_BYTES = 512 };

/** Zeroed: empty. */
typedef struct tgi_corpus {
  tgi_token_store store;
  tgi_data_kind kind;
  size_t num_files;
  int64_t left_out; /* documents without targets, which are not in the store */
  tgi_hash128 hash; /* of tokens, documents and what counts */
  bool was_cached;
  bool uses_date;                   /* a template asks for today's date */
  char cache[TGI_CACHE_PATH_BYTES]; /* its file; "": none */
  char note[TGI_CORPUS_NOTE_BYTES]; /* why there is no cache, or why an old one was made again */
} tgi_corpus;

/**
 * Loads a file, or all files that a pattern matches. Every line is read before this returns.
 *
 * Documents of JSONL begin with what the tokenizer's post-processor adds, and end with its end
 * token. Text of control tokens becomes their ids in text and documents; in conversations only in
 * what neither users nor tools wrote.
 *
 * Errors: IO, NO_MEMORY, BAD_FILE (data, naming file and line or byte), and those of
 * tg_chat_template_load.
 */
tg_status tgi_corpus_load(const char *pattern, const tgi_corpus_options *options, tgi_corpus *out,
                          tg_error *error);

void tgi_corpus_close(tgi_corpus *corpus);

#endif
