#define _GNU_SOURCE /* renameat2 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "files/directories/durable_file.h"
#include "paired_files.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool no_exchange;
int die_at_rename;

int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);

static void count_rename(void)
{
  if (die_at_rename > 0 && --die_at_rename == 0) {
    _exit(77);
  }
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
  if (no_exchange) {
    errno = EINVAL;
    return -1;
  }
  count_rename();
  return __real_renameat2(from_dir, from, to_dir, to, flags);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
  count_rename();
  return __real_renameat(from_dir, from, to_dir, to);
}

const char *inside(const char *directory, const char *name)
{
  static char paths[4][2048];
  static int turn;
  char *path = paths[turn++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", directory, name);
  return path;
}

tg_status save_stage(const char *path, int generation, tgi_atomic_directory **out, tg_error *error)
{
  static char bytes[PAYLOAD];
  memset(bytes, 'a' + generation % 26, sizeof bytes);
  const tg_status status = tgi_atomic_directory_begin(path, out, error);
  if (status != TG_OK) {
    return status;
  }
  const char *temporary = tgi_atomic_directory_path(*out);
  tg_status written = tgi_durable_file_save(inside(temporary, "one"), bytes, PAYLOAD, error);
  if (written == TG_OK) {
    written = tgi_durable_file_save(inside(temporary, "two"), bytes, PAYLOAD, error);
  }
  if (written != TG_OK) {
    tgi_atomic_directory_drop(*out);
  }
  return written;
}

tg_status save(const char *path, int generation, tg_error *error)
{
  tgi_atomic_directory *d;
  const tg_status status = save_stage(path, generation, &d, error);
  return status == TG_OK ? tgi_atomic_directory_commit(d, error) : status;
}

int letter_of(const char *path)
{
  size_t one_size, two_size;
  char *one = read_file(inside(path, "one"), &one_size);
  char *two = read_file(inside(path, "two"), &two_size);
  assert_int_equal(one_size, PAYLOAD);
  assert_int_equal(two_size, PAYLOAD);
  for (size_t i = 0; i < PAYLOAD; i++) {
    if (one[i] != one[0] || two[i] != one[0]) {
      fail_msg("byte %zu of a torn checkpoint: %c and %c, not %c", i, one[i], two[i], one[0]);
    }
  }
  const int letter = (unsigned char)one[0];
  free(one);
  free(two);
  return letter;
}
