/** Prints one JSON object on standard output, for --json. */
#ifndef TGI_CLI_JSON_PRINT_H
#define TGI_CLI_JSON_PRINT_H

#include "files/json_file.h"

/** Significant digits of measured numbers. */
#define TGI_JSON_DIGITS JSON_REAL_PRECISION(9)

/** Prints and frees `root`; `flags` as for json_dumps. Out of memory is reported on standard error.
 */
void tgi_json_print(json_t *root, size_t flags);

#endif
