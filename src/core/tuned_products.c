/* Tables of measured products and their files: see tuned_products.h. */
#define _GNU_SOURCE /* mkstemp, dirent */
#include "core/tuned_products.h"

#include "core/error_record.h"
#include "core/machine/environment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kTitle[] = "tegula products 2";
static const char kPrefix[] = "products-", kSuffix[] = ".txt";

enum { kHead = 512, kLine = 160, kMostBytes = 1 << 20 };

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) {
    h = (h ^ at[i]) * 1099511628211U;
  }
  return h;
}

static const uint64_t kEmptyHash = 14695981039346656037U;

/* ---- the table ---- */

/* The place of a key: its own, or the free one where it would go. */
static const tgi_tuned_product *place_of(const tgi_tuned *t, const tgi_tuned_key *key)
{
  uint64_t at = hash(kEmptyHash, key, sizeof *key) % TGI_TUNED_PLACES;
  while (t->places[at].candidate != TGI_TUNED_NONE &&
         memcmp(&t->places[at].key, key, sizeof *key) != 0) {
    at = (at + 1) % TGI_TUNED_PLACES; /* at most half of the places are taken */
  }
  return &t->places[at];
}

int tgi_tuned_find(const tgi_tuned *t, const tgi_tuned_key *key)
{
  return t && t->count > 0 ? place_of(t, key)->candidate : TGI_TUNED_NONE;
}

bool tgi_tuned_is_fresh(const tgi_tuned *t, const tgi_tuned_key *key)
{
  const tgi_tuned_product *place = place_of(t, key);
  return place->candidate != TGI_TUNED_NONE && place->fresh;
}

void tgi_tuned_clear_fresh(tgi_tuned *t)
{
  for (int i = 0; i < TGI_TUNED_PLACES; i++) {
    t->places[i].fresh = false;
  }
}

bool tgi_tuned_put(tgi_tuned *t, const tgi_tuned_product *product)
{
  tgi_tuned_product *place = &t->places[place_of(t, &product->key) - t->places];
  if (place->candidate == TGI_TUNED_NONE) {
    if (t->count >= TGI_TUNED_MOST) {
      return false;
    }
    t->count++;
  }
  *place = *product;
  return true;
}

/* ---- its text ---- */

static int write_head(const tgi_tuned_owner *o, char *text, size_t bytes)
{
  return snprintf(text, bytes, "%s\ngpu %s\ndriver %s\nbuild %s\n", kTitle, o->gpu, o->driver,
                  o->build);
}

/* Times are whole nanoseconds: a fraction's point would depend on the locale. */
static int write_product(const tgi_tuned_product *p, char *text, size_t bytes)
{
  const tgi_tuned_key *k = &p->key;
  const int64_t nanoseconds = (int64_t)(1e3 * (double)p->microseconds + 0.5);
  return snprintf(text, bytes,
                  "%" PRId64 " %" PRId64 " %" PRId64 " %d %d %d %d %d %d %d %" PRId64 "\n", k->m,
                  k->n, k->k, k->dtype, k->c_dtype, k->a_major, k->b_major, k->adds, k->finishes,
                  p->candidate, nanoseconds);
}

static const char kLineFormat[] =
    "%" SCNd64 " %" SCNd64 " %" SCNd64 " %d %d %d %d %d %d %d %" SCNd64 "%n";

static bool read_product(const char *line, tgi_tuned_product *p)
{
  tgi_tuned_key *k = &p->key;
  int64_t nanoseconds = 0;
  int end = 0;
  memset(p, 0, sizeof *p);
  const int read =
      sscanf(line, kLineFormat, &k->m, &k->n, &k->k, &k->dtype, &k->c_dtype, &k->a_major,
             &k->b_major, &k->adds, &k->finishes, &p->candidate, &nanoseconds, &end);
  p->microseconds = 1e-3F * (float)nanoseconds;
  return read == 11 && line[end] == '\n' && p->candidate > TGI_TUNED_NONE;
}

static void ignore(tgi_tuned *t, const char *expected, const char *got)
{
  snprintf(t->why, sizeof t->why, "%s: expected %s, got %s", t->path, expected, got);
  memset(t->places, 0, sizeof t->places);
  t->count = 0;
}

/* The lines between head and end. */
static bool read_products(tgi_tuned *t, const char *at, const char *end)
{
  while (at < end) {
    tgi_tuned_product p;
    if (!read_product(at, &p) || !tgi_tuned_put(t, &p)) {
      return false;
    }
    at = strchr(at, '\n') + 1;
  }
  return true;
}

static void read_text(tgi_tuned *t, const char *text)
{
  char head[kHead];
  const int size = write_head(&t->owner, head, sizeof head);
  const char *end = strstr(text, "\nend ");
  int count = -1;
  uint64_t sum = 0;
  if (strncmp(text, kTitle, sizeof kTitle - 1) != 0) {
    ignore(t, "a table of products", "another file");
  } else if (!end || sscanf(end, "\nend %d %" SCNx64, &count, &sum) != 2 ||
             sum != hash(kEmptyHash, text, (size_t)(end + 1 - text))) {
    ignore(t, "a whole table", "one that is damaged");
  } else if (strncmp(text, head, (size_t)size) != 0) {
    ignore(t, "a table of this GPU, driver and build", "one of others");
  } else if (!read_products(t, text + size, end + 1) || t->count != count) {
    ignore(t, "lines of products", "others");
  }
}

/* ---- its file ---- */

static void name_file(tgi_tuned *t)
{
  char directory[TGI_TUNED_PATH - 64], head[kHead];
  const int size = write_head(&t->owner, head, sizeof head);
  if (tgi_environment_cache_directory(directory, sizeof directory)) {
    snprintf(t->path, sizeof t->path, "%s/%s%016" PRIx64 "%s", directory, kPrefix,
             hash(kEmptyHash, head, (size_t)size), kSuffix);
  }
}

static void read_file(tgi_tuned *t)
{
  FILE *file = t->path[0] ? fopen(t->path, "rb") : NULL;
  char *text = file ? malloc(kMostBytes + 1) : NULL;
  if (text) {
    const size_t bytes = fread(text, 1, kMostBytes, file);
    text[bytes] = 0;
    read_text(t, text);
  } else if (t->path[0] && errno != ENOENT) {
    ignore(t, "to read it", strerror(errno));
  }
  free(text);
  if (file) {
    fclose(file);
  }
}

tgi_tuned *tgi_tuned_open(const tgi_tuned_owner *owner)
{
  tgi_tuned *t = calloc(1, sizeof *t);
  if (t) {
    t->owner = *owner;
    name_file(t);
    read_file(t);
  }
  return t;
}

void tgi_tuned_close(tgi_tuned *t)
{
  free(t);
}

static bool write_all(const tgi_tuned *t, FILE *file)
{
  char line[kHead];
  int size = write_head(&t->owner, line, sizeof line);
  uint64_t sum = hash(kEmptyHash, line, (size_t)size);
  fwrite(line, 1, (size_t)size, file);
  for (int i = 0; i < TGI_TUNED_PLACES; i++) {
    if (t->places[i].candidate != TGI_TUNED_NONE) {
      size = write_product(&t->places[i], line, kLine);
      sum = hash(sum, line, (size_t)size);
      fwrite(line, 1, (size_t)size, file);
    }
  }
  fprintf(file, "end %d %016" PRIx64 "\n", t->count, sum);
  return fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
}

/* The directory of the file, and those above it. */
static void make_directories(const char *path)
{
  char part[TGI_TUNED_PATH];
  for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
    mkdir(part, 0777);
  }
}

/* Writes the table to a file beside its own, which then takes its place. */
static bool replace_file(const tgi_tuned *t)
{
  char beside[TGI_TUNED_PATH + 16];
  snprintf(beside, sizeof beside, "%s.XXXXXX", t->path);
  const int fd = mkstemp(beside);
  if (fd < 0) {
    return false;
  }
  FILE *file = fdopen(fd, "wb");
  bool done = file && write_all(t, file);
  int cause = errno;
  if ((file ? fclose(file) : close(fd)) != 0 && done) {
    done = false;
    cause = errno;
  }
  if (done && rename(beside, t->path) != 0) {
    done = false;
    cause = errno;
  }
  if (!done) {
    unlink(beside);
    errno = cause;
  }
  return done;
}

/* Adds what `from` has of `fresh` products, or all of it, and the table has not. A product that no
 * longer fits is left out: it is measured again. */
static void add_products(tgi_tuned *t, const tgi_tuned *from, bool only_fresh)
{
  for (int i = 0; i < TGI_TUNED_PLACES; i++) {
    const tgi_tuned_product *p = &from->places[i];
    if (p->candidate != TGI_TUNED_NONE && (p->fresh || !only_fresh) &&
        tgi_tuned_find(t, &p->key) == TGI_TUNED_NONE) {
      (void)tgi_tuned_put(t, p);
    }
  }
}

/* What was measured, and all else that the file has by now. */
static bool merge_into_file(const tgi_tuned *t)
{
  tgi_tuned *now = tgi_tuned_open(&t->owner), *all = calloc(1, sizeof *all);
  bool done = false;
  if (now && all) {
    all->owner = t->owner;
    memcpy(all->path, t->path, sizeof all->path);
    add_products(all, t, true);
    add_products(all, now, false);
    done = replace_file(all);
  }
  const int cause = errno;
  tgi_tuned_close(now);
  free(all);
  errno = cause;
  return done;
}

/* Locks the directory of the file against other writers, until the result is closed. Where a file
 * system has no locks, the last of two that write at once wins. */
static int lock_directory(const char *path)
{
  char directory[TGI_TUNED_PATH];
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
  const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    (void)flock(fd, LOCK_EX);
  }
  return fd;
}

tg_status tgi_tuned_save(const tgi_tuned *t, tg_error *error)
{
  if (!t->path[0]) {
    return tgi_error_set(error, TG_IO,
                         "tune: expected a cache directory (TEGULA_CACHE_DIR, "
                         "XDG_CACHE_HOME or HOME), got none");
  }
  make_directories(t->path);
  const int lock = lock_directory(t->path);
  const bool done = merge_into_file(t);
  const int cause = errno;
  if (lock >= 0) {
    close(lock);
  }
  if (!done) {
    return tgi_error_set(error, TG_IO, "%s: expected to write it, got %s", t->path,
                         strerror(cause));
  }
  return TG_OK;
}

void tgi_tuned_text(const tgi_tuned *t, char *text, size_t bytes)
{
  if (t && t->count > 0) {
    snprintf(text, bytes, "%s: %d product%s", t->path, t->count, t->count == 1 ? "" : "s");
  } else if (t && t->why[0]) {
    snprintf(text, bytes, "built in; %s", t->why);
  } else {
    snprintf(text, bytes, "built in");
  }
}

tg_status tgi_tuned_clear(int64_t *removed, tg_error *error)
{
  char directory[TGI_TUNED_PATH], path[2 * TGI_TUNED_PATH];
  *removed = 0;
  const bool has_place = tgi_environment_cache_directory(directory, sizeof directory);
  DIR *d = has_place ? opendir(directory) : NULL;
  if (has_place && !d && errno != ENOENT && errno != ENOTDIR) {
    return tgi_error_set(error, TG_IO, "%s: expected to list it, got %s", directory,
                         strerror(errno));
  }
  for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
    if (strncmp(e->d_name, kPrefix, sizeof kPrefix - 1) != 0 || !strstr(e->d_name, kSuffix)) {
      continue; /* what a writer left behind has the suffix within its name */
    }
    snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
    if (unlink(path) == 0) {
      ++*removed;
    } else if (errno != ENOENT) { /* another may have removed it, or renamed it */
      const int cause = errno;
      closedir(d);
      return tgi_error_set(error, TG_IO, "%s: expected to remove it, got %s", path,
                           strerror(cause));
    }
  }
  if (d) {
    closedir(d);
  }
  return TG_OK;
}
