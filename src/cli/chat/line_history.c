#include "line_history.h"

static bool is_last(const tgi_line_history *h, const tgi_text_buffer *text)
{
  const tgi_text_buffer *last = h->count > 0 ? &h->lines[h->count - 1] : NULL;
  return last && last->size == text->size && memcmp(last->bytes, text->bytes, text->size) == 0;
}

void tgi_history_add(tgi_line_history *h, const tgi_text_buffer *text)
{
  tgi_text_buffer kept = {NULL, 0, 0};
  if (text->size > 0 && !is_last(h, text) && tgi_text_append(&kept, text->bytes, text->size)) {
    if (h->count == TGI_HISTORY_LINES) {
      tgi_text_free(&h->lines[0]);
      h->count--;
      memmove(h->lines, h->lines + 1, h->count * sizeof *h->lines);
    }
    h->lines[h->count++] = kept;
  }
  h->at = h->count;
  h->draft.size = 0;
}

static bool copy(tgi_text_buffer *to, const tgi_text_buffer *from)
{
  to->size = 0;
  return from->size == 0 || tgi_text_append(to, from->bytes, from->size);
}

bool tgi_history_recall(tgi_line_history *h, tgi_line *line, bool older)
{
  if (older ? h->at == 0 : h->at == h->count) {
    return true;
  }
  bool ok = h->at < h->count || copy(&h->draft, &line->text);
  h->at = older ? h->at - 1 : h->at + 1;
  ok = copy(&line->text, h->at < h->count ? &h->lines[h->at] : &h->draft) && ok;
  line->cursor = line->text.size;
  line->changed_from = 0;
  return ok;
}

void tgi_history_free(tgi_line_history *h)
{
  for (size_t i = 0; i < h->count; i++) {
    tgi_text_free(&h->lines[i]);
  }
  tgi_text_free(&h->draft);
  h->count = h->at = 0;
}
