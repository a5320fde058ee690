/* The library's own templates, for models that come without one. */
#include "template_set.h"
#include <string.h>

/*
 * Both mark the assistant's text with the token that ends it, so that what is trained on them
 * learns to stop. Content is a text, or a list of parts of which those with a text count.
 */
#define PARTS                                                                                      \
  "{%- macro text(content) -%}\n"                                                                  \
  "{%- if content is string -%}{{ content }}{%- else -%}\n"                                        \
  "{%- for part in content if part.text is defined -%}{{ part.text }}{%- endfor -%}\n"             \
  "{%- endif -%}\n"                                                                                \
  "{%- endmacro -%}\n"

static const char chatml[] =
    PARTS "{%- for message in messages -%}\n"
          "{{- '<|im_start|>' + message.role + '\\n' -}}\n"
          "{%- if message.role == 'assistant' -%}\n"
          "{% generation %}{{ text(message.content) + '<|im_end|>' }}{% endgeneration %}\n"
          "{%- else -%}{{ text(message.content) + '<|im_end|>' }}{%- endif -%}\n"
          "{{- '\\n' -}}\n"
          "{%- endfor -%}\n"
          "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";

static const char llama3[] =
    PARTS "{{- bos_token | default('<|begin_of_text|>') -}}\n"
          "{%- for message in messages -%}\n"
          "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}\n"
          "{%- if message.role == 'assistant' -%}\n"
          "{% generation %}{{ text(message.content) | trim + '<|eot_id|>' }}{% endgeneration %}\n"
          "{%- else -%}{{ text(message.content) | trim + '<|eot_id|>' }}{%- endif -%}\n"
          "{%- endfor -%}\n"
          "{%- if add_generation_prompt -%}\n"
          "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\n"
          "{%- endif -%}\n";

const char *tgi_builtin_template(const char *name)
{
  return strcmp(name, "chatml") == 0 ? chatml : strcmp(name, "llama3") == 0 ? llama3 : NULL;
}
