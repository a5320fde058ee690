#include "corpus.h"

#include "conversation_tokens.h"
#include "core/growing.h"
#include "corpus_key.h"
#include "files/file_error.h"
#include "json_lines.h"
#include "text/tokenizer_state.h"
#include "token_cache.h"
#include "token_file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- documents to a writer ---- */

/* What turns files into tokens, and where they go. */
typedef struct maker {
  const tgi_corpus_options *options;
  tgi_chat_reader reader;
  tgi_token_writer writer;
  int32_t end_token; /* -1: none */
} maker;

/* The first token is no target of its own document. */
static bool has_targets(const uint8_t *counted, size_t count)
{
  return count > 1 && (!counted || memchr(counted + 1, 1, count - 1));
}

static tg_status add_document(maker *m, const int32_t *ids, const uint8_t *counted, size_t count,
                              tg_error *error)
{
  if (!has_targets(counted, count)) {
    m->writer.left_out++;
    return TG_OK;
  }
  return tgi_token_writer_add(&m->writer, ids, counted, (int64_t)count, error);
}

/* The ids of a text, cut behind every end token. All of it is kept, as it is one stream, too. */
static tg_status add_cut(maker *m, const int32_t *ids, size_t count, tg_error *error)
{
  tg_status status = TG_OK;
  size_t begin = 0;
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    if (ids[i] == m->end_token || i + 1 == count) {
      status = tgi_token_writer_add(&m->writer, ids + begin, NULL, (int64_t)(i + 1 - begin), error);
      begin = i + 1;
    }
  }
  return status;
}

/* The tokenizer's error holds the byte offset of invalid UTF-8; this adds the file's name. */
static tg_status name_file(const char *path, tg_status status, tg_error *error)
{
  if (error && (status == TG_BAD_ARGUMENT || status == TG_UNSUPPORTED)) {
    const tg_error inner = *error;
    tgi_file_error_fill_at(error, TG_BAD_FILE, path, TGI_NO_BYTE, "%s", inner.text);
  }
  return status == TG_BAD_ARGUMENT || status == TG_UNSUPPORTED ? TG_BAD_FILE : status;
}

static tg_status read_text(maker *m, const tgi_data_file *file, tg_error *error)
{
  int32_t *ids;
  size_t count;
  tg_status status = tgi_tokenizer_encode_all(m->options->tokenizer, file->map.data, file->map.size,
                                              0, &ids, &count, error);
  status = name_file(file->path, status, error);
  if (status == TG_OK) {
    status = add_cut(m, ids, count, error);
  }
  free(ids);
  return status;
}

static tg_status read_document(maker *m, const tgi_json_lines *lines, tg_error *error)
{
  const json_t *text = json_object_get(lines->json.root, "text");
  int32_t *ids;
  size_t count;
  tg_status status = tgi_tokenizer_encode_all(m->options->tokenizer, json_string_value(text),
                                              json_string_length(text), TG_TOKENIZER_ADD_SPECIAL,
                                              &ids, &count, error);
  status = name_file(lines->name, status, error);
  if (status == TG_OK && m->end_token >= 0 && (count == 0 || ids[count - 1] != m->end_token)) {
    int32_t *grown = realloc(ids, (count + 1) * sizeof *ids);
    if (grown) {
      ids = grown;
      ids[count++] = m->end_token;
    } else {
      status = tgi_file_error_memory(error, lines->name, (count + 1) * sizeof *ids);
    }
  }
  status = status ? status : add_document(m, ids, NULL, count, error);
  free(ids);
  return status;
}

/* The end token that joins conversations counts as no target: the template did not write it. */
static tg_status join_conversation(tgi_chat_reader *reader, int32_t end_token, const char *line,
                                   tg_error *error)
{
  tgi_spanned_ids *tokens = &reader->tokens;
  const size_t n = tokens->count;
  if (end_token < 0 || n == 0 || tokens->ids[n - 1] == end_token) {
    return TG_OK;
  }
  int32_t *ids = tgi_grow(tokens->ids, &tokens->capacity, n + 1, sizeof *ids);
  if (!ids) {
    return tgi_file_error_memory(error, line, (n + 1) * sizeof *ids);
  }
  ids[n] = end_token;
  reader->counted[n] = 0; /* there is room for one more */
  tokens->ids = ids;
  tokens->count++;
  return TG_OK;
}

static tg_status read_conversation(maker *m, const tgi_json_lines *lines, tg_error *error)
{
  tgi_chat_reader *reader = &m->reader;
  tg_status status = tgi_conversation_read(reader, &lines->json, error);
  if (status == TG_OK && m->options->join) {
    status = join_conversation(reader, m->end_token, lines->name, error);
  }
  return status ? status
                : add_document(m, reader->tokens.ids, reader->counted, reader->tokens.count, error);
}

static tg_status read_lines(maker *m, const tgi_data_file *file, tgi_data_kind kind,
                            tg_error *error)
{
  tgi_json_lines lines = {.path = file->path, .text = file->map.data, .size = file->map.size};
  bool found = true, has_messages;
  tg_status status = TG_OK;
  while (status == TG_OK && found) {
    status = tgi_json_lines_next(&lines, &found, error);
    if (status != TG_OK || !found) {
      break;
    }
    status = tgi_json_line_kind(&lines, &has_messages, error);
    if (status == TG_OK && has_messages != (kind == TGI_DATA_MESSAGES)) {
      status = tgi_file_error(
          error, TG_BAD_FILE, lines.name, TGI_NO_BYTE, "\"%s\" as in the first line, got \"%s\"",
          has_messages ? "text" : "messages", has_messages ? "messages" : "text");
    }
    if (status == TG_OK) {
      status = has_messages ? read_conversation(m, &lines, error) : read_document(m, &lines, error);
    }
  }
  tgi_json_lines_end(&lines);
  return status;
}

/* ---- the cache ---- */

static tg_status make_directories(char *path, tg_error *error)
{
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    const int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
    if (failed) {
      tgi_file_error_system(error, path, TGI_NO_BYTE, "make this directory", failed);
    }
    *slash = '/';
    if (failed) {
      return TG_IO;
    }
  }
  return TG_OK;
}

static void forget_cache(tgi_corpus *out, const tg_error *why)
{
  snprintf(out->note, sizeof out->note, "no cache, tokens are kept in memory: %.400s", why->text);
  out->cache[0] = '\0';
}

/* Begins to write: into the cache, or where that cannot be, in memory. */
static tg_status begin(tgi_corpus *out, const tgi_corpus_options *o, tgi_hash128 key,
                       tgi_token_writer *writer, tg_error *error)
{
  const int32_t vocab_size = tg_tokenizer_vocab_size(o->tokenizer);
  tg_error why = {TG_OK, ""};
  if (out->cache[0]) {
    tg_status status = make_directories(out->cache, &why);
    status = status ? status : tgi_token_writer_begin(out->cache, key, vocab_size, writer, &why);
    if (status == TG_OK) {
      return status;
    }
    forget_cache(out, &why);
  }
  return tgi_token_writer_begin(NULL, key, vocab_size, writer, error);
}

static tg_status make_tokens(const tgi_data_files *files, const tgi_corpus_options *o,
                             const tg_chat_template *chat_template, tgi_hash128 key,
                             tgi_corpus *out, tg_error *error)
{
  maker m = {.options = o, .end_token = tg_tokenizer_special(o->tokenizer, "eos_token")};
  tgi_token_cache_info info = {0};
  m.reader = (tgi_chat_reader){.chat_template = chat_template,
                               .tokenizer = o->tokenizer,
                               .arguments = o->template_arguments,
                               .name = o->template_name,
                               .date = o->date,
                               .trust = o->trust};
  tg_status status = begin(out, o, key, &m.writer, error);
  for (size_t i = 0; i < files->count && status == TG_OK; i++) {
    status = files->kind == TGI_DATA_TEXT ? read_text(&m, &files->list[i], error)
                                          : read_lines(&m, &files->list[i], files->kind, error);
  }
  status = status ? status : tgi_token_writer_commit(&m.writer, &out->store, &info, error);
  tgi_token_writer_drop(&m.writer);
  tgi_chat_reader_free(&m.reader);
  out->left_out = info.left_out;
  out->hash = info.hash;
  return status;
}

static tg_status find_or_make(const tgi_data_files *files, const tgi_corpus_options *o,
                              const tg_chat_template *chat_template, tgi_corpus *out,
                              tg_error *error)
{
  tgi_hash128 key;
  tgi_token_cache_info info;
  tg_error why = {TG_OK, ""};
  tg_status status = tgi_corpus_key(files, o, chat_template, &key, error);
  if (status != TG_OK) {
    return status;
  }
  if (o->cache_directory) {
    const int size = snprintf(out->cache, sizeof out->cache, "%s/tokens-%s.bin", o->cache_directory,
                              tgi_hash_print(key).text);
    out->cache[size < (int)sizeof out->cache ? size : 0] = '\0';
  }
  if (out->cache[0]) {
    status = tgi_token_cache_open(out->cache, key, tg_tokenizer_vocab_size(o->tokenizer),
                                  &out->store, &info, &why);
    if (status == TG_OK) {
      out->was_cached = true;
      out->left_out = info.left_out;
      out->hash = info.hash;
      return TG_OK;
    }
    if (status == TG_BAD_FILE) {
      snprintf(out->note, sizeof out->note, "made again: %.400s", why.text);
    }
  }
  status = make_tokens(files, o, chat_template, key, out, &why);
  if (status == TG_IO && out->cache[0]) { /* the writer alone does I/O here: a full disk, say */
    forget_cache(out, &why);
    status = make_tokens(files, o, chat_template, key, out, &why);
  }
  if (status != TG_OK && error) {
    *error = why;
  }
  return status;
}

/* ---- files of ids ---- */

static tg_status check_ids(const tgi_data_files *files, const tgi_token_store *store,
                           int32_t vocab_size, tg_error *error)
{
  int64_t at;
  const int32_t largest = tgi_store_largest(store, &at);
  size_t file = 0;
  while (file + 1 < store->num_parts && store->parts[file + 1].begin <= at) {
    file++;
  }
  return largest < vocab_size
             ? TG_OK
             : tgi_file_error(error, TG_BAD_FILE, files->list[file].path, TGI_NO_BYTE,
                              "ids below the vocabulary's %d, got %d at index %lld", vocab_size,
                              largest, (long long)(at - store->parts[file].begin));
}

static tg_status map_ids(const tgi_data_files *files, const tgi_corpus_options *o, tgi_corpus *out,
                         tg_error *error)
{
  tgi_token_store *store = &out->store;
  tgi_hasher hasher = {0};
  tg_status status = TG_OK;
  store->parts = calloc(files->count + 1, sizeof *store->parts);
  store->maps = calloc(files->count + 1, sizeof *store->maps);
  if (!store->parts || !store->maps) {
    return tgi_file_error_memory(error, files->list[0].path, files->count * sizeof *store->maps);
  }
  for (size_t i = 0; i < files->count && status == TG_OK; i++) {
    tgi_token_file file;
    status = tgi_token_file_open(files->list[i].path, &file, error);
    if (status != TG_OK) {
      break;
    }
    if (file.vocab_size >= 0 && file.vocab_size != o->vocab_size) {
      status = tgi_file_error(error, TG_BAD_FILE, files->list[i].path, 24,
                              "ids of the model's vocabulary of %d, got one of %lld", o->vocab_size,
                              (long long)file.vocab_size);
    }
    tgi_hasher_add_item(&hasher, file.ids, (size_t)file.count * (size_t)file.id_bytes);
    store->parts[store->num_parts++] =
        (tgi_token_part){.ids = file.ids, .id_bytes = file.id_bytes, .begin = store->count};
    store->maps[store->num_maps++] = file.map;
    store->count += file.count;
  }
  out->hash = tgi_hasher_end(&hasher);
  status = status ? status : check_ids(files, store, o->vocab_size, error);
  return status || !o->documents
             ? status
             : tgi_store_find_documents(store, tg_tokenizer_special(o->tokenizer, "eos_token"),
                                        error);
}

/* ---- all of it ---- */

static tg_status load_files(const tgi_data_files *files, const tgi_corpus_options *o,
                            tgi_corpus *out, tg_error *error)
{
  tg_chat_template *chat_template = NULL;
  tg_status status = TG_OK;
  for (size_t i = 0; i < files->count && o->log; i++) {
    if (tgi_same_file(files->list[i].path, o->log)) {
      return tgi_file_error(error, TG_BAD_FILE, files->list[i].path, TGI_NO_BYTE,
                            "data in another file than the log, got the log");
    }
  }
  if (files->kind == TGI_DATA_TOKENS) {
    return map_ids(files, o, out, error);
  }
  if (files->kind == TGI_DATA_MESSAGES) {
    if (!o->template_directory && !o->template_source) {
      return tgi_file_error(error, TG_BAD_FILE, files->list[0].path, TGI_NO_BYTE,
                            "a chat template for conversations (--template), got none");
    }
    status =
        tg_chat_template_load(o->template_directory, o->template_source, &chat_template, error);
  }
  out->uses_date =
      status == TG_OK && chat_template && tg_chat_template_mentions(chat_template, "strftime_now");
  status = status ? status : find_or_make(files, o, chat_template, out, error);
  tg_chat_template_destroy(chat_template);
  return status;
}

tg_status tgi_corpus_load(const char *pattern, const tgi_corpus_options *options, tgi_corpus *out,
                          tg_error *error)
{
  tgi_data_files files;
  *out = (tgi_corpus){.kind = TGI_DATA_TEXT};
  tg_status status = tgi_data_files_open(pattern, &files, error);
  if (status == TG_OK) {
    out->kind = files.kind;
    out->num_files = files.count;
    status = load_files(&files, options, out, error);
  }
  tgi_data_files_close(&files);
  if (status != TG_OK) {
    tgi_store_close(&out->store);
  }
  return status;
}

void tgi_corpus_close(tgi_corpus *corpus)
{
  tgi_store_close(&corpus->store);
}
