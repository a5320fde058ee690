/** Environment variables of the library and the command line. No other file reads the environment.
 */
#ifndef TGI_CORE_ENVIRONMENT_H
#define TGI_CORE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/** TEGULA_ENTRY: first chain entry of contexts whose options name none; NULL if unset or empty. */
const char *tgi_environment_entry(void);

/** TERM: whether it is unset, empty or "dumb", so that a terminal cannot rewrite a line. */
bool tgi_environment_dumb_terminal(void);

/** OMP_NUM_THREADS: its number, or the first of a list ("4,2"); 0 if it is unset or starts with
 * none from 1 to INT_MAX. */
int tgi_environment_threads(void);

/** NO_COLOR: whether it is set and not empty. */
bool tgi_environment_no_color(void);

/** NVTX_INJECTION64_PATH: whether it is set and not empty. Profilers set it in what they start, to
 * be told of NVTX's marks. */
bool tgi_environment_nvtx(void);

/** The user's directory for what can be made again: TEGULA_CACHE_DIR, else tegula in XDG_CACHE_HOME
 * (an absolute path, as its specification says), else .cache/tegula in HOME. False where none is
 * set, or where it is longer than `bytes`. */
bool tgi_environment_cache_directory(char *path, size_t bytes);

/** Where Hugging Face's programs keep what they downloaded: HF_HUB_CACHE, else HF_HOME/hub, else
 * XDG_CACHE_HOME/huggingface/hub, else HOME/.cache/huggingface/hub, by the first that is set and
 * not empty. False if none is, or if the path does not fit. */
bool tgi_environment_hub_cache(char *path, size_t bytes);

#endif
