/** The hash of all that the tokens of files depend on. */
#ifndef TGI_DATA_CORPUS_KEY_H
#define TGI_DATA_CORPUS_KEY_H

#include "corpus.h"

/** `chat_template` is NULL where there are no conversations. Errors: NO_MEMORY. */
tg_status tgi_corpus_key(const tgi_data_files *files, const tgi_corpus_options *options,
                         const tg_chat_template *chat_template, tgi_hash128 *key, tg_error *error);

#endif
