/* tegula info: the machine as the library sees it, and what a model directory holds. */
#include "command.h"
#include "console.h"
#include "core/context_state.h"
#include "core/processor.h"
#include "model/json_writer.h"
#include "option_table.h"
#include "tegula/model.h"
#include "tegula/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char kName[] = "tegula info";

typedef struct options {
  bool json;
} options;

static const tgi_option rows[] = {
    {"json", NULL, TGI_OPTION_FLAG, TGI_AT(options, json), 0, 0, "one JSON object"},
    {0},
};

static const tgi_command command_line = {
    .name = "tegula info",
    .positions = "[DIR]",
    .help = "What this machine is, which kernels it runs, and, with DIR, the sizes of that model.",
    .options = rows,
    .most_positions = 1,
};

typedef struct machine {
  char cpu[128], chain[128];
  tgi_processor processor;
  tg_context *ctx;
  double memory, available; /* bytes; 0: unknown */
} machine;

/* MemAvailable of /proc/meminfo. */
static double available_memory(void)
{
  char line[128];
  double kib = 0;
  FILE *f = fopen("/proc/meminfo", "r");
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "MemAvailable: %lf", &kib) == 1) {
      break;
    }
  }
  if (f) {
    (void)fclose(f);
  }
  return 1024 * kib;
}

static tg_status look(machine *m, tg_error *error)
{
  const tg_context_options cpu = {.backend = TG_BACKEND_CPU};
  memset(m, 0, sizeof *m);
  const tg_status status = tg_context_create(&cpu, &m->ctx, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_processor_name(m->cpu, sizeof m->cpu);
  m->processor = tgi_processor_detect();
  for (int i = 0; i < m->ctx->chain.length; i++) {
    const size_t used = strlen(m->chain);
    snprintf(m->chain + used, sizeof m->chain - used, "%s%s", i ? " -> " : "",
             m->ctx->chain.entry[i]);
  }
  m->memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  m->available = available_memory();
  return TG_OK;
}

static void print_machine(const machine *m)
{
  const tgi_processor *p = &m->processor;
  printf("tegula     %s\n", tg_version());
  printf("cpu        %s\n", m->cpu);
  printf("features  %s%s%s%s\n", p->avx2 ? " avx2" : "", p->avx512 ? " avx512" : "",
         p->avx512_bf16 ? " avx512_bf16" : "", p->avx512_vnni ? " avx512_vnni" : "");
  printf("kernels    %s (first: %s)\n", m->chain, tg_context_entry(m->ctx));
  printf("caches     L1d %s, L2 %s, L3 %s\n", tgi_size((double)p->l1d_bytes).text,
         tgi_size((double)p->l2_bytes).text, tgi_size((double)p->l3_bytes).text);
  printf("threads    %d of %d CPUs\n", tg_context_num_threads(m->ctx), tgi_processor_count());
  printf("memory     %s, %s available\n", tgi_size(m->memory).text, tgi_size(m->available).text);
  printf("devices    none: this build serves CPUs alone\n");
}

static void print_model(const char *directory, const tg_model_info *i, const char *tokenizer)
{
  printf("model      %s: %s, %.2f M parameters, %s in %s\n", directory, i->model_type,
         (double)i->num_parameters / 1e6, tgi_size((double)i->weight_bytes).text,
         tg_dtype_name(i->dtype));
  printf("  layers     %d, width %d, intermediate %d\n", i->num_hidden_layers, i->hidden_size,
         i->intermediate_size);
  printf("  heads      %d of %d, %d for keys and values\n", i->num_attention_heads, i->head_dim,
         i->num_key_value_heads);
  printf("  positions  %d\n", i->max_position_embeddings);
  printf("  ids        %d, end of text %d\n", i->vocab_size, i->end_of_text);
  printf("  tokenizer  %s\n", tokenizer);
}

static void write_machine(tgi_json_writer *w, const machine *m)
{
  const tgi_processor *p = &m->processor;
  tgi_json_put_string(w, "version", tg_version());
  tgi_json_put_string(w, "cpu", m->cpu);
  tgi_json_open_array(w, "features");
  if (p->avx2) {
    tgi_json_put_string(w, NULL, "avx2");
  }
  if (p->avx512) {
    tgi_json_put_string(w, NULL, "avx512");
  }
  if (p->avx512_bf16) {
    tgi_json_put_string(w, NULL, "avx512_bf16");
  }
  if (p->avx512_vnni) {
    tgi_json_put_string(w, NULL, "avx512_vnni");
  }
  tgi_json_close_array(w);
  tgi_json_open_array(w, "chain");
  for (int i = 0; i < m->ctx->chain.length; i++) {
    tgi_json_put_string(w, NULL, m->ctx->chain.entry[i]);
  }
  tgi_json_close_array(w);
  tgi_json_put_string(w, "entry", tg_context_entry(m->ctx));
  tgi_json_put_integer(w, "l1d_bytes", (int64_t)p->l1d_bytes);
  tgi_json_put_integer(w, "l2_bytes", (int64_t)p->l2_bytes);
  tgi_json_put_integer(w, "l3_bytes", (int64_t)p->l3_bytes);
  tgi_json_put_integer(w, "threads", tg_context_num_threads(m->ctx));
  tgi_json_put_integer(w, "cpus", tgi_processor_count());
  tgi_json_put_integer(w, "memory_bytes", (int64_t)m->memory);
  tgi_json_put_integer(w, "available_bytes", (int64_t)m->available);
  tgi_json_open_array(w, "devices");
  tgi_json_close_array(w);
}

static void write_model(tgi_json_writer *w, const char *directory, const tg_model_info *i,
                        const char *tokenizer)
{
  tgi_json_open_object(w, "model");
  tgi_json_put_string(w, "directory", directory);
  tgi_json_put_string(w, "model_type", i->model_type);
  tgi_json_put_string(w, "dtype", tg_dtype_name(i->dtype));
  tgi_json_put_integer(w, "parameters", i->num_parameters);
  tgi_json_put_integer(w, "weight_bytes", (int64_t)i->weight_bytes);
  tgi_json_put_integer(w, "num_hidden_layers", i->num_hidden_layers);
  tgi_json_put_integer(w, "hidden_size", i->hidden_size);
  tgi_json_put_integer(w, "intermediate_size", i->intermediate_size);
  tgi_json_put_integer(w, "num_attention_heads", i->num_attention_heads);
  tgi_json_put_integer(w, "num_key_value_heads", i->num_key_value_heads);
  tgi_json_put_integer(w, "head_dim", i->head_dim);
  tgi_json_put_integer(w, "max_position_embeddings", i->max_position_embeddings);
  tgi_json_put_integer(w, "vocab_size", i->vocab_size);
  tgi_json_put_integer(w, "end_of_text", i->end_of_text);
  tgi_json_put_string(w, "tokenizer", tokenizer);
  tgi_json_close_object(w);
}

/* What `generate` could do with the directory's text. */
static void describe_tokenizer(const char *directory, char *text, size_t bytes)
{
  tg_tokenizer *tokenizer = NULL;
  tg_error error;
  if (tg_tokenizer_load(directory, &tokenizer, &error) == TG_OK) {
    snprintf(text, bytes, "byte-level, %d ids", tg_tokenizer_vocab_size(tokenizer));
  } else {
    snprintf(text, bytes, "none that this version reads: %s", error.text);
  }
  tg_tokenizer_destroy(tokenizer);
}

static tg_status report(const machine *m, const char *directory, bool json, tg_error *error)
{
  tg_model *model = NULL;
  tg_model_info info = {0};
  char tokenizer[600] = "";
  if (directory) {
    const tg_status status = tg_model_load(directory, TG_DTYPE_NONE, &model, error);
    if (status != TG_OK) {
      return status;
    }
    info = tg_model_get_info(model);
    describe_tokenizer(directory, tokenizer, sizeof tokenizer);
  }
  if (json) {
    tgi_json_writer w = {.indent = 2};
    tgi_json_open_object(&w, NULL);
    write_machine(&w, m);
    if (directory) {
      write_model(&w, directory, &info, tokenizer);
    }
    tgi_json_close_object(&w);
    tgi_json_put_raw(&w, "\n", 1);
    (void)fwrite(w.text, 1, w.size, stdout);
    tgi_json_writer_free(&w);
  } else {
    print_machine(m);
    if (directory) {
      print_model(directory, &info, tokenizer);
    }
  }
  tg_model_destroy(model);
  return TG_OK;
}

int tgi_info_command(int argc, char **argv)
{
  options o = {false};
  tgi_parsed given;
  machine m;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  tg_status status = look(&m, &error);
  status = status ? status : report(&m, given.position[0], o.json, &error);
  tg_context_destroy(m.ctx);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
