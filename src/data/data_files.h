/** The files that --train-file names, and what they hold. */
#ifndef TGI_DATA_DATA_FILES_H
#define TGI_DATA_DATA_FILES_H

#include "files/file_map.h"
#include <stdbool.h>

typedef enum tgi_data_kind {
  TGI_DATA_TEXT,      /* UTF-8 text, whose documents end with the end token's text */
  TGI_DATA_DOCUMENTS, /* JSONL: {"text": ...} */
  TGI_DATA_MESSAGES,  /* JSONL: {"messages": [...], ...} */
  TGI_DATA_TOKENS,    /* ids, as token_file.h has them */
} tgi_data_kind;

/** "text", "documents (JSONL)", ... */
const char *tgi_data_kind_name(tgi_data_kind kind);

typedef struct tgi_data_file {
  char *path;
  tgi_file_map map;
} tgi_data_file;

/** Zeroed: none. */
typedef struct tgi_data_files {
  tgi_data_file *list;
  size_t count;
  tgi_data_kind kind; /* of all of them */
} tgi_data_files;

/** Whether two names stand for one file. False where one of them names none. */
bool tgi_same_file(const char *a, const char *b);

/**
 * Opens a file, or where there is none of this name, all files that it matches as a shell's
 * pattern, in the order of their names. The kind follows from a file's first bytes (ids), its name
 * (.jsonl, .ndjson, .json; .txt is text) and else from its first line.
 *
 * Errors: IO, NO_MEMORY, BAD_FILE (an empty file, files of several kinds, JSONL whose first line is
 * neither kind, ids without their header).
 */
tg_status tgi_data_files_open(const char *pattern, tgi_data_files *files, tg_error *error);

void tgi_data_files_close(tgi_data_files *files);

#endif
