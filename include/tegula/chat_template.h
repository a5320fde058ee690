/**
 * Chat templates: a conversation to the text that a model was trained on.
 *
 * A template is a program in the part of Jinja that chat templates use; it comes with the model's
 * directory. Rendering gives, byte for byte, what `apply_chat_template` of Hugging Face
 * transformers 5.24 gives for the same messages, tools and arguments. docs/chat_templates.md
 * lists what is understood, and the few places where Python's behaviour is not followed.
 *
 * Templates are run without access to files, clocks or the environment, and with bounds: a template
 * that loops, nests or prints for ever ends with an error. A loaded template is immutable: any
 * number of threads may render with one concurrently.
 *
 * Messages of errors name the template, line and column (from 1, in code points):
 *   <file>: line <line>, column <column>: expected <rule>, got <value>
 */
#ifndef TEGULA_CHAT_TEMPLATE_H
#define TEGULA_CHAT_TEMPLATE_H

#include "status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a template, and of each JSON text that a rendering is given. */
#define TG_CHAT_TEMPLATE_MAX_BYTES (1 << 20)
#define TG_CHAT_TEMPLATE_MAX_JSON (64 << 20)

/**
 * Bounds of one rendering: nodes evaluated, plus one for 64 bytes of text that are searched or
 * copied; levels of nested expressions, statements, calls and lists; bytes of values and text.
 */
#define TG_CHAT_TEMPLATE_MAX_STEPS 10000000
#define TG_CHAT_TEMPLATE_MAX_DEPTH 1000
#define TG_CHAT_TEMPLATE_MAX_MEMORY (512 << 20)

typedef struct tg_chat_template tg_chat_template;

/**
 * Loads the template of a model directory, with the names of its special tokens.
 *
 *   source  NULL: the first of `chat_template.jinja` with `additional_chat_templates/<name>.jinja`,
 *           and `chat_template` in tokenizer_config.json (a text, or a list of names and texts).
 *           "chatml", "llama3": a template of the library's own. Else a file.
 *
 * `directory` may be NULL where `source` is given; there are no special tokens then. Several
 * templates of a directory are kept by name: "default", "tool_use", "rag", ...
 *
 * Errors: IO, NO_MEMORY, BAD_FILE (no directory; JSON; the syntax of a template), UNSUPPORTED (a
 * directory without a template; a construct outside the part of Jinja that is understood),
 * BAD_ARGUMENT (neither directory nor source); *out is then NULL. `error` may be NULL in every
 * function.
 */
TG_API tg_status tg_chat_template_load(const char *directory, const char *source,
                                       tg_chat_template **out, tg_error *error);

/**
 * A template from `size` bytes of UTF-8 in memory; messages call it `name`. Errors: those of load
 * but IO.
 */
TG_API tg_status tg_chat_template_create(const char *name, const char *text, size_t size,
                                         tg_chat_template **out, tg_error *error);

/** Frees the template; NULL is allowed. */
TG_API void tg_chat_template_destroy(tg_chat_template *chat_template);

/**
 * Text of the template called `name` (terminated; valid until the template is destroyed), or NULL.
 * A single template is called "default".
 */
TG_API const char *tg_chat_template_text(const tg_chat_template *chat_template, const char *name);

/**
 * Whether a template mentions a variable, `enable_thinking` say: an argument of another name would
 * change nothing. With the name `generation`: whether a template marks the assistant's text.
 */
TG_API bool tg_chat_template_mentions(const tg_chat_template *chat_template, const char *variable);

/** A conversation. JSON is UTF-8, terminated; an absent text is NULL. */
typedef struct tg_chat_request {
  const char *messages;  /* JSON: a list of objects, at least one */
  const char *tools;     /* JSON: a list of objects; optional */
  const char *documents; /* JSON: a list of objects; optional */
  const char *arguments; /* JSON: an object of more variables, which replace special tokens of the
                            same name; optional */
  const char *name;      /* of the template; NULL: "tool_use" where it is there and tools are
                            given, else "default" */
  const char *date;      /* for strftime_now: "YYYY-MM-DD" or "YYYY-MM-DDTHH:MM:SS", a local time;
                            NULL: now */
  bool add_generation_prompt; /* ends with the beginning of the assistant's answer */
} tg_chat_request;

/** Bytes begin to end - 1 of a text. */
typedef struct tg_byte_range {
  size_t begin, end;
} tg_byte_range;

/**
 * The text (terminated), and where parts of it come from; both lists are in order, and no range is
 * empty.
 *
 *   untrusted  what others than the operator and the model wrote: strings of messages whose role is
 *              not "system", "developer" or "assistant", and of documents. Text of special tokens
 *              in there is not meant as such. Tools and arguments are the operator's. A role itself
 *              is not marked where it consists of ASCII letters, digits, "_" and "-".
 *   generated  what the template marks by {% generation %} as the assistant's: the ranges of
 *              transformers' `return_assistant_tokens_mask`. They do not overlap unless a template
 *              nests such marks. None without the mark.
 */
typedef struct tg_chat_text {
  char *text;
  size_t size;
  tg_byte_range *untrusted;
  size_t num_untrusted;
  tg_byte_range *generated;
  size_t num_generated;
} tg_chat_text;

/**
 * Renders a conversation. As in transformers, keys of messages whose value is null are left out,
 * and `reasoning_content`, `thinking` and `reasoning` stand for each other.
 *
 * Errors: BAD_ARGUMENT (JSON that is damaged or no list of objects; an unknown name; a date of
 * another form; messages that the template refuses, or that make it fail: an attribute of nothing,
 * an addition of text and number, ...), UNSUPPORTED (a construct that is not understood, at a bound
 * above), NO_MEMORY; *out is then zeroed.
 */
TG_API tg_status tg_chat_template_render(const tg_chat_template *chat_template,
                                         const tg_chat_request *args, tg_chat_text *out,
                                         tg_error *error);

/** Frees what render returned, and zeroes it. */
TG_API void tg_chat_text_release(tg_chat_text *text);

#ifdef __cplusplus
}
#endif
#endif
