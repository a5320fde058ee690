/** Printing one JSON object on standard output: what --json asks for. */
#ifndef TGI_CLI_JSON_PRINT_H
#define TGI_CLI_JSON_PRINT_H

#include "files/json_file.h"

/** Numbers of measurements: as many digits as say something. */
#define TGI_JSON_DIGITS JSON_REAL_PRECISION(9)

/** Takes `root`; `flags` as for json_dumps. Out of memory is said on standard error. */
void tgi_json_print(json_t *root, size_t flags);

#endif
