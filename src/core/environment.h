/** The environment variables that the library reads; the only place that reads any. */
#ifndef TGI_CORE_ENVIRONMENT_H
#define TGI_CORE_ENVIRONMENT_H

/** TEGULA_ENTRY: first chain entry of contexts whose options name none; NULL if unset or empty. */
const char *tgi_environment_entry(void);

#endif
