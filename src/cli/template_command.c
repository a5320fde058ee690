/* tegula template: renders a conversation by a chat template, as a model would be given it. */
#include "command.h"
#include "console.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include "files/hub_name.h"
#include "json_print.h"
#include "option_table.h"
#include "tegula/chat_template.h"
#include "template_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula template";

typedef struct options {
  const char *file, *tools, *documents;
  tgi_template_options of_template;
  bool prompt, json;
} options;

static const tgi_option rows[] = {
    {"file", "FILE", TGI_AT(options, file), 0, 0,
     "the messages: a JSON list of objects with role and content", TGI_OPTION_TEXT, 0},
    {"tools", "FILE", TGI_AT(options, tools), 0, 0,
     "tools that the model may call: a JSON list of objects", TGI_OPTION_TEXT, 0},
    {"documents", "FILE", TGI_AT(options, documents), 0, 0,
     "documents to answer from: a JSON list of objects", TGI_OPTION_TEXT, 0},
    TGI_TEMPLATE_ROWS(options, of_template),
    {"add-generation-prompt", NULL, TGI_AT(options, prompt), 0, 0,
     "end with the beginning of the assistant's answer", TGI_OPTION_FLAG, 0},
    {"json", NULL, TGI_AT(options, json), 0, 0,
     "print one JSON object: the text, and the byte ranges that users and tools wrote (untrusted) "
     "and that the template marks as the assistant's (generated)",
     TGI_OPTION_FLAG, 0},
    {0},
};

static const tgi_command command_line = {
    .name = "tegula template",
    .positions = "[DIR]",
    .help = "Print the text that the chat template of the model in DIR makes of a conversation.",
    .options = rows,
    .most_positions = 1,
};

/** The file's bytes with a terminator; NULL for no path. */
static tg_status read_text(const char *path, char **text, tg_error *error)
{
  tgi_file_map map;
  if (!path) {
    return TG_OK;
  }
  tg_status status = tgi_file_map_open(path, TG_CHAT_TEMPLATE_MAX_JSON, &map, error);
  if (status != TG_OK) {
    return status;
  }
  const char *nul = memchr(map.data, '\0', map.size);
  *text = nul ? NULL : malloc(map.size + 1);
  if (*text) {
    memcpy(*text, map.data, map.size);
    (*text)[map.size] = '\0';
  } else if (nul) {
    status = tgi_file_error(error, TG_BAD_FILE, path, (uint64_t)(nul - map.data),
                            "JSON, got a byte of value 0");
  } else {
    status = tgi_file_error_memory(error, path, map.size + 1);
  }
  tgi_file_map_close(&map);
  return status;
}

static json_t *list_ranges(const tg_byte_range *ranges, size_t count)
{
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(
        list, json_pack("[I, I]", (json_int_t)ranges[i].begin, (json_int_t)ranges[i].end));
  }
  return list;
}

static void print(const tg_chat_text *text, bool json)
{
  if (!json) {
    (void)fwrite(text->text, 1, text->size, stdout);
    return;
  }
  json_t *root = tgi_json_new();
  json_object_set_new(root, "text", json_stringn(text->text, text->size));
  json_object_set_new(root, "untrusted", list_ranges(text->untrusted, text->num_untrusted));
  json_object_set_new(root, "generated", list_ranges(text->generated, text->num_generated));
  tgi_json_print(root, 0);
}

static tg_status render(const options *o, const char *directory, tg_error *error)
{
  tgi_model_path path;
  tg_chat_template *chat_template = NULL;
  tg_chat_text text = {0};
  char *messages = NULL, *tools = NULL, *documents = NULL, *arguments = NULL;
  tg_status status = directory ? tgi_model_path_find(directory, &path, error) : TG_OK;
  status = status ? status : read_text(o->file, &messages, error);
  status = status ? status : read_text(o->tools, &tools, error);
  status = status ? status : read_text(o->documents, &documents, error);
  status = status ? status : tgi_template_arguments(&o->of_template.arguments, &arguments, error);
  status = status ? status
                  : tg_chat_template_load(directory ? path.text : NULL, o->of_template.source,
                                          &chat_template, error);
  if (status == TG_OK) {
    status = tg_chat_template_render(chat_template,
                                     &(tg_chat_request){.messages = messages,
                                                        .tools = tools,
                                                        .documents = documents,
                                                        .arguments = arguments,
                                                        .name = o->of_template.name,
                                                        .date = o->of_template.date,
                                                        .add_generation_prompt = o->prompt},
                                     &text, error);
  }
  if (status == TG_OK) {
    print(&text, o->json);
  }
  tg_chat_text_release(&text);
  tg_chat_template_destroy(chat_template);
  free(messages);
  free(tools);
  free(documents);
  tgi_json_free_text(arguments);
  return status;
}

int tgi_template_command(int argc, char **argv)
{
  options o = {0};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (!o.file) {
    return tgi_usage_error(&command_line, "expected --file FILE, got none");
  }
  if (given.num_positions == 0 && !o.of_template.source) {
    return tgi_usage_error(&command_line, "expected DIR or --template SOURCE, got neither");
  }
  const int code = tgi_template_check(&command_line, &o.of_template);
  if (code != 0) {
    return code;
  }
  return render(&o, given.position[0], &error) ? tgi_console_fail_with(kName, &error) : 0;
}
