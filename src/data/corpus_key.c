#include "corpus_key.h"

#include "files/json_file.h"
#include "tegula/context.h"
#include "template_key.h"
#include "text/tokenizer_state.h"
#include <string.h>

static void add_text(tgi_hasher *h, const char *text)
{
  tgi_hasher_add_item(h, text ? text : "", text ? strlen(text) : 0);
}

static void add_number(tgi_hasher *h, int64_t number)
{
  tgi_hasher_add(h, &number, sizeof number);
}

static void add_tokenizer(tgi_hasher *h, const tg_tokenizer *tokenizer)
{
  for (int i = 0; i < TGI_MAX_KEPT_FILES; i++) {
    const tgi_kept_file *file = &tokenizer->files.list[i];
    if (file->name) {
      add_text(h, file->name);
      tgi_hasher_add_item(h, file->text, file->size);
    }
  }
}

tg_status tgi_corpus_key(const tgi_data_files *files, const tgi_corpus_options *options,
                         const tg_chat_template *chat_template, tgi_hash128 *key, tg_error *error)
{
  tgi_hasher h = {0};
  add_text(&h, tg_version()); /* other versions may make other tokens */
  add_number(&h, (int64_t)files->kind);
  for (size_t i = 0; i < files->count; i++) {
    tgi_hasher_add_item(&h, files->list[i].map.data, files->list[i].map.size);
  }
  add_tokenizer(&h, options->tokenizer);
  if (chat_template) {
    char *arguments = NULL;
    tgi_json_begin();
    const tg_status status =
        options->template_arguments
            ? tgi_json_text("--template-arg",
                            json_incref((json_t *)(uintptr_t)options->template_arguments),
                            JSON_COMPACT, &arguments, error)
            : TG_OK;
    if (status != TG_OK) {
      return status;
    }
    tgi_hasher_add_template(&h, chat_template);
    add_text(&h, options->template_name);
    add_text(&h, arguments);
    add_text(&h, tg_chat_template_mentions(chat_template, "strftime_now") ? options->date : NULL);
    add_number(&h, options->trust);
    add_number(&h, options->join);
    tgi_json_free_text(arguments);
  }
  *key = tgi_hasher_end(&h);
  return TG_OK;
}
