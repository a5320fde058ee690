/** A directory of its own for a test, and the few file calls that tests make. Failures end the
 * test. */
#ifndef TEGULA_TESTS_SCRATCH_DIRECTORY_H
#define TEGULA_TESTS_SCRATCH_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

#define SCRATCH_PATH 512

typedef struct scratch {
  char path[SCRATCH_PATH];
} scratch;

/** An empty directory below $TMPDIR or /tmp. */
scratch scratch_make(void);

/** Removes it and all that it holds. */
void scratch_remove(const scratch *directory);

/** `<directory>/<name>`; valid for the next 63 calls. */
const char *scratch_file(const scratch *directory, const char *name);

void write_file(const char *path, const void *bytes, size_t size);
void write_text(const char *path, const char *text);

/** The file's bytes and a terminator, to be freed. */
char *read_file(const char *path, size_t *size);

bool file_exists(const char *path);

/** Entries of a directory but "." and "..". */
size_t count_entries(const char *path);

#endif
