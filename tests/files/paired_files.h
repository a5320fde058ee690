/**
 * A checkpoint of two files that must agree, saved through atomic_directory.h, and renames under
 * the test's control: link with -Wl,--wrap=renameat2,--wrap=renameat.
 */
#ifndef TEGULA_TESTS_PAIRED_FILES_H
#define TEGULA_TESTS_PAIRED_FILES_H

#include "files/directories/atomic_directory.h"
#include <stdbool.h>

enum { PAYLOAD = 20000 };

/** Whether renameat2 refuses, as file systems do that cannot exchange. */
extern bool no_exchange;

/** n: the process ends at the n-th rename from now on; 0: never. */
extern int die_at_rename;

/** `<directory>/<name>`; valid for the next three calls. */
const char *inside(const char *directory, const char *name);

/** Begins a save and writes both files, PAYLOAD times the letter of the generation. */
tg_status save_stage(const char *path, int generation, tgi_atomic_directory **out, tg_error *error);

/** The same and the commit. */
tg_status save(const char *path, int generation, tg_error *error);

/** The letter of a complete checkpoint; fails the test where it is torn. */
int letter_of(const char *path);

#endif
