/** Looking through directories and removing those that atomic_directory.c made. */
#ifndef TGI_FILES_LEFTOVER_DIRECTORY_H
#define TGI_FILES_LEFTOVER_DIRECTORY_H

#include <stdbool.h>

typedef enum tgi_step { TGI_GO_ON, TGI_STOP } tgi_step;

/**
 * Calls `visit` for each entry of an open directory but "." and "..", until it says TGI_STOP.
 * Returns 0 or the errno value of a failure to read.
 */
int tgi_visit_entries(int directory,
                      tgi_step (*visit)(int directory, const char *name, void *state), void *state);

/** Links are not followed. */
bool tgi_is_directory(int directory, const char *name);
bool tgi_entry_exists(int directory, const char *name);

/**
 * Empties and removes `name` in the open directory `parent`: a directory of ours that no process
 * works on. Subdirectories are the user's (ours have none) and go to `target_name`, also in
 * `parent`. What cannot be removed stays: a leftover costs space, not correctness.
 */
void tgi_remove_leftover(int parent, const char *name, const char *target_name);

#endif
