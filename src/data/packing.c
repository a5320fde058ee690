#include "packing.h"

#include "core/growing.h"
#include "files/file_error.h"
#include "order.h"
#include <stdlib.h>
#include <string.h>

bool tgi_packing_of(const char *name, tgi_packing *packing)
{
  static const char *const names[] = {"off", "concat", "documents"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(name, names[i]) == 0) {
      *packing = (tgi_packing)i;
      return true;
    }
  }
  return false;
}

bool tgi_long_documents_of(const char *name, tgi_long_documents *rule)
{
  static const char *const names[] = {"cut", "split", "error"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(name, names[i]) == 0) {
      *rule = (tgi_long_documents)i;
      return true;
    }
  }
  return false;
}

static tg_status no_memory(tg_error *error, uint64_t bytes)
{
  return tgi_file_error_memory(error, "rows", bytes);
}

/* ---- documents to pieces ---- */

static tg_status add_piece(const tgi_token_store *store, tgi_piece piece, tgi_rows *rows,
                           size_t *capacity, tg_error *error)
{
  const int64_t targets = tgi_store_count_targets(store, piece.first + 1, piece.count);
  if (targets == 0) {
    rows->left_out++;
    return TG_OK;
  }
  const size_t wanted = (size_t)rows->num_pieces + 1;
  tgi_piece *grown = tgi_grow(rows->pieces, capacity, wanted, sizeof *grown);
  if (!grown) {
    return no_memory(error, wanted * sizeof *grown);
  }
  grown[rows->num_pieces++] = piece;
  rows->pieces = grown;
  rows->num_pairs += piece.count;
  rows->num_targets += targets;
  return TG_OK;
}

static tg_status cut_documents(const tgi_token_store *store, const tgi_pack_options *o,
                               tgi_rows *rows, tg_error *error)
{
  size_t capacity = 0;
  tg_status status = TG_OK;
  for (int64_t d = o->first; d < o->first + o->count && status == TG_OK; d++) {
    const int64_t begin = tgi_store_begin(store, d), last = (int64_t)store->ends[d] - 1;
    if (last - begin > o->row_length) {
      rows->long_documents++;
      if (o->rule == TGI_LONG_REFUSE) {
        return tgi_file_error(error, TG_BAD_FILE, "--long-documents", TGI_NO_BYTE,
                              "documents of at most %d tokens (--seq and one more), got document "
                              "%lld of %lld tokens",
                              o->row_length + 1, (long long)d + 1, (long long)(last + 1 - begin));
      }
    }
    int64_t at = begin;
    do {
      const int64_t left = last - at;
      const tgi_piece piece = {at, (int32_t)(left < o->row_length ? left : o->row_length)};
      status = add_piece(store, piece, rows, &capacity, error);
      at += piece.count;
    } while (status == TG_OK && at < last && o->rule == TGI_LONG_SPLIT);
    rows->pairs_cut += last - at;
  }
  return status;
}

/* ---- pieces to rows ---- */

/*
 * Rows that are still open, by the pairs that they have room for: chains of rows, and a bit for
 * each chain that is not empty.
 */
typedef struct open_rows {
  int64_t *heads; /* [row_length + 1]: the first row of the chain; -1: none */
  int64_t *next;  /* [rows]: the row behind */
  uint64_t *bits;
} open_rows;

static int64_t take_row(open_rows *open, int32_t wanted, int32_t row_length, int32_t *room)
{
  const int32_t words = row_length / 64 + 1;
  int32_t word = wanted / 64;
  uint64_t bits = open->bits[word] & ~(uint64_t)0 << wanted % 64;
  while (bits == 0 && ++word < words) {
    bits = open->bits[word];
  }
  if (bits == 0) {
    return -1;
  }
  *room = word * 64 + __builtin_ctzll(bits);
  const int64_t row = open->heads[*room];
  open->heads[*room] = open->next[row];
  if (open->heads[*room] < 0) {
    open->bits[word] &= ~((uint64_t)1 << *room % 64);
  }
  return row;
}

static void put_row(open_rows *open, int64_t row, int32_t room)
{
  open->next[row] = open->heads[room];
  open->heads[room] = row;
  open->bits[room / 64] |= (uint64_t)1 << room % 64;
}

/* Order of pieces: the longest first, equally long ones at random. */
static tg_status sort_pieces(const tgi_pack_options *o, tgi_rows *rows, tg_error *error)
{
  const size_t n = (size_t)rows->num_pieces, lengths = (size_t)o->row_length + 2;
  tgi_piece *sorted = calloc(n + 1, sizeof *sorted);
  int64_t *places = calloc(lengths, sizeof *places);
  if (!sorted || !places) {
    free(sorted);
    free(places);
    return no_memory(error, (n + 1) * sizeof *sorted);
  }
  for (size_t i = 0; i < n; i++) {
    places[o->row_length - rows->pieces[i].count + 1]++;
  }
  for (size_t i = 1; i < lengths; i++) {
    places[i] += places[i - 1];
  }
  for (size_t i = 0; i < n; i++) {
    const tgi_piece *piece = &rows->pieces[tgi_permute(i, n, tgi_mix(o->seed, 1))];
    sorted[places[o->row_length - piece->count]++] = *piece;
  }
  free(places);
  free(rows->pieces);
  rows->pieces = sorted;
  return TG_OK;
}

/* Gives each piece its row; returns the number of rows. */
static int64_t fit(const tgi_rows *rows, open_rows *open, int64_t *row_of)
{
  int64_t num_rows = 0;
  for (int64_t i = 0; i < rows->num_pieces; i++) {
    int32_t room = rows->row_length;
    const int32_t count = rows->pieces[i].count;
    int64_t row = take_row(open, count, rows->row_length, &room);
    if (row < 0) {
      row = num_rows++;
      room = rows->row_length;
    }
    row_of[i] = row;
    if (room > count) {
      put_row(open, row, room - count);
    }
  }
  return num_rows;
}

/* Brings pieces that are sorted by length into the order of their rows. */
static tg_status gather(tgi_rows *rows, const int64_t *row_of, tg_error *error)
{
  const size_t n = (size_t)rows->num_pieces;
  tgi_piece *gathered = calloc(n + 1, sizeof *gathered);
  rows->begins = calloc((size_t)rows->num_rows + 2, sizeof *rows->begins);
  if (!gathered || !rows->begins) {
    free(gathered);
    return no_memory(error, (n + 1) * sizeof *gathered);
  }
  for (size_t i = 0; i < n; i++) {
    rows->begins[row_of[i] + 2]++;
  }
  for (int64_t r = 0; r < rows->num_rows; r++) {
    const int32_t pieces = (int32_t)rows->begins[r + 2];
    rows->most_pieces = pieces > rows->most_pieces ? pieces : rows->most_pieces;
    rows->begins[r + 2] += rows->begins[r + 1];
  }
  for (size_t i = 0; i < n; i++) { /* begins[r + 1] moves to where row r ends */
    gathered[rows->begins[row_of[i] + 1]++] = rows->pieces[i];
  }
  free(rows->pieces);
  rows->pieces = gathered;
  return TG_OK;
}

static tg_status pack_pieces(const tgi_pack_options *o, tgi_rows *rows, tg_error *error)
{
  const size_t n = (size_t)rows->num_pieces, rooms = (size_t)o->row_length + 1;
  open_rows open = {malloc(rooms * sizeof *open.heads), malloc((n + 1) * sizeof *open.next),
                    calloc(rooms / 64 + 1, sizeof *open.bits)};
  int64_t *row_of = calloc(n + 1, sizeof *row_of);
  tg_status status = open.heads && open.next && open.bits && row_of
                         ? sort_pieces(o, rows, error)
                         : no_memory(error, (2 * n + rooms) * sizeof *row_of);
  if (status == TG_OK) {
    memset(open.heads, 0xff, rooms * sizeof *open.heads);
    rows->num_rows = fit(rows, &open, row_of);
    status = gather(rows, row_of, error);
  }
  free(open.heads);
  free(open.next);
  free(open.bits);
  free(row_of);
  return status;
}

static tg_status one_each(tgi_rows *rows, tg_error *error)
{
  const size_t n = (size_t)rows->num_pieces;
  rows->begins = malloc((n + 1) * sizeof *rows->begins);
  if (!rows->begins) {
    return no_memory(error, (n + 1) * sizeof *rows->begins);
  }
  for (size_t i = 0; i <= n; i++) {
    rows->begins[i] = (int64_t)i;
  }
  rows->num_rows = rows->num_pieces;
  rows->most_pieces = 1;
  return TG_OK;
}

tg_status tgi_rows_pack(const tgi_token_store *store, const tgi_pack_options *options,
                        tgi_rows *rows, tg_error *error)
{
  *rows = (tgi_rows){.row_length = options->row_length};
  tg_status status = cut_documents(store, options, rows, error);
  if (status == TG_OK) {
    status = options->packing == TGI_PACK_DOCUMENTS ? pack_pieces(options, rows, error)
                                                    : one_each(rows, error);
  }
  if (status != TG_OK) {
    tgi_rows_free(rows);
  }
  return status;
}

void tgi_rows_free(tgi_rows *rows)
{
  free(rows->pieces);
  free(rows->begins);
  *rows = (tgi_rows){0};
}
