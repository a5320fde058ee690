/* tegula info: describes the machine, its kernels, and a model directory. */
#include "command.h"
#include "console.h"
#include "core/context_state.h"
#include "core/machine/processor.h"
#include "files/hub_name.h"
#include "generation/free_memory.h"
#include "json_print.h"
#include "model/weights/weights.h"
#include "ops/shape.h"
#include "option_table.h"
#include "roof/gpu_roof.h"
#include "tegula/device.h"
#include "tegula/tokenizer.h"
#include "text/kept_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kName[] = "tegula info";

typedef struct options {
  bool json;
} options;

static const tgi_option rows[] = {
    {"json", NULL, TGI_AT(options, json), 0, 0, "print one JSON object", TGI_OPTION_FLAG, 0},
    {0},
};

static const tgi_command command_line = {
    .name = "tegula info",
    .positions = "[DIR]",
    .help = "Describe this machine and the kernels chosen for it; with DIR also the model in DIR.",
    .options = rows,
    .most_positions = 1,
};

typedef struct machine {
  char cpu[128], chain[128];
  tgi_processor processor;
  tg_context *ctx;
  double memory, available; /* bytes; 0: unknown */
} machine;

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
  m->available = (double)tgi_free_memory("");
  return TG_OK;
}

/* ---- plans ---- */

/* Calls of a model with 32 heads, whose tiles differ with the size of a head. */
static const struct {
  const char *name, *op_dir, *shape;
} calls[] = {
    {"attention, heads of 64", "attention_fwd", "b1_h32_kv8_s4096_d64_causal"},
    {"attention, heads of 128", "attention_fwd", "b1_h32_kv8_s4096_d128_causal"},
    {"product, heads of 64", "linear_fwd", "4096x2048x2048"},
    {"product, heads of 128", "linear_fwd", "4096x4096x4096"},
};

enum { kCalls = sizeof calls / sizeof calls[0], kPlanBytes = 256 };

/* How GPU `index` runs each in bf16; "" where it does not say. */
static void find_plans(int index, char plans[kCalls][kPlanBytes])
{
  const tg_context_options o = {.backend = TG_BACKEND_CUDA, .device_index = index};
  tg_context *ctx = NULL;
  tgi_shaped *shaped = malloc(sizeof *shaped);
  const bool opened = shaped && tg_context_create(&o, &ctx, NULL) == TG_OK;
  if (opened) {
    (void)tg_context_prepare(
        ctx); /* without cublasLt, products run in tiles of the library's own */
  }
  for (int i = 0; i < kCalls; i++) {
    size_t workspace;
    plans[i][0] = 0;
    if (opened && tgi_shape_fill(calls[i].op_dir, calls[i].shape, TG_BF16, shaped, NULL) == TG_OK) {
      tgi_shaped_place(shaped);
      if (shaped->info->workspace(ctx, shaped->args.bytes, &workspace) == TG_OK) {
        tgi_shape_explain(ctx, shaped, plans[i], kPlanBytes);
      }
    }
  }
  tg_context_destroy(ctx);
  free(shaped);
}

static void print_plans(int index)
{
  char plans[kCalls][kPlanBytes];
  find_plans(index, plans);
  for (int i = 0; i < kCalls; i++) {
    printf("  %-24s %s\n", calls[i].name, plans[i][0] ? plans[i] : "no plan to show");
  }
}

static json_t *describe_plans(int index)
{
  char plans[kCalls][kPlanBytes];
  json_t *all = json_array();
  find_plans(index, plans);
  for (int i = 0; i < kCalls; i++) {
    json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "op", calls[i].op_dir, "shape",
                                         calls[i].shape, "plan", plans[i]));
  }
  return all;
}

static void print_device(int index, const tg_device_info *d)
{
  printf("gpu %-6d %s, compute capability %d.%d, %d multiprocessors\n", index, d->name,
         d->compute_capability / 10, d->compute_capability % 10, d->multiprocessors);
  printf("  memory     %s, %s free; L2 %s; %s shared memory per block\n",
         tgi_size((double)d->memory_bytes).text, tgi_size((double)d->free_bytes).text,
         tgi_size((double)d->l2_bytes).text, tgi_size((double)d->shared_bytes).text);
  printf("  datasheet  %.0f GB/s, %.0f TFLOP/s bf16\n", d->peak_bytes_per_s / 1e9,
         d->peak_bf16_flops / 1e12);
  tgi_gpu_roof roof;
  if (d->supported && tgi_gpu_roof_measure(index, TG_BF16, &roof, NULL) == TG_OK) {
    printf("  measured   %.0f GB/s (copy), %.0f TFLOP/s bf16 (product of 8192 x 8192)\n",
           roof.bytes_per_s / 1e9, roof.product_flops / 1e12);
  }
  printf("  features  %s%s%s\n", d->cp_async ? " cp.async" : "", d->tma ? " tma" : "",
         d->wgmma ? " wgmma" : "");
  printf("  kernels    %s\n", d->supported ? d->kernels : d->reason);
  if (d->supported) {
    print_plans(index);
  }
}

/* "none"; and why, where the machine has a GPU all the same: a device file of the driver's (of
 * Windows' in WSL). The error of tg_context_create says it. */
static void print_no_devices(void)
{
  static const char kFunction[] = "context_create: ";
  const tg_context_options cuda = {.backend = TG_BACKEND_CUDA};
  tg_context *ctx = NULL;
  tg_error error = {TG_OK, ""};
  const bool has_gpu = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
  if (has_gpu && tg_context_create(&cuda, &ctx, &error) != TG_OK) {
    const bool named = strncmp(error.text, kFunction, sizeof kFunction - 1) == 0;
    printf("devices    none (%s)\n", error.text + (named ? sizeof kFunction - 1 : 0));
  } else {
    printf("devices    none\n");
  }
  tg_context_destroy(ctx);
}

static void print_devices(void)
{
  const int count = tg_device_count();
  if (count == 0) {
    print_no_devices();
  }
  for (int i = 0; i < count; i++) {
    tg_device_info info;
    tg_error error;
    if (tg_device_get_info(i, &info, &error) == TG_OK) {
      print_device(i, &info);
    } else {
      printf("gpu %-6d %s\n", i, error.text);
    }
  }
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
  print_devices();
}

/* "256", "1, 2", or "none". */
static void list_ends(const tg_model *model, char *text, size_t bytes)
{
  int64_t count;
  const int32_t *ids = tg_model_eos_token_ids(model, &count);
  snprintf(text, bytes, "none");
  for (int64_t i = 0, used = 0; i < count && used < (int64_t)bytes; i++) {
    used += snprintf(text + used, bytes - (size_t)used, i ? ", %d" : "%d", ids[i]);
  }
}

static int count_sliding(const tgi_config *c)
{
  int count = 0;
  for (int i = 0; i < c->num_hidden_layers; i++) {
    count += tgi_config_slides(c, i);
  }
  return count;
}

static void print_experts(const tg_model *model)
{
  const tgi_config *c = &model->config;
  if (c->num_experts) {
    printf("  experts    %d in a layer, %d for each token%s\n", c->num_experts,
           c->experts_per_token, tgi_model_keeps_mxfp4(model) ? "; MXFP4" : "");
  }
  if (c->sliding_window) {
    printf("  window     %d tokens in %d of %d layers\n", c->sliding_window, count_sliding(c),
           c->num_hidden_layers);
  }
}

static void print_model(const char *directory, const tg_model *model, const char *tokenizer)
{
  const tg_model_info info = tg_model_get_info(model), *i = &info;
  char ends[256];
  list_ends(model, ends, sizeof ends);
  printf("model      %s: %s, %.2f M parameters, %s in %s\n", directory, i->model_type,
         (double)i->num_parameters / 1e6, tgi_size((double)i->weight_bytes).text,
         tg_dtype_name(i->dtype));
  printf("  layers     %d, width %d, intermediate %d\n", i->num_hidden_layers, i->hidden_size,
         i->intermediate_size);
  print_experts(model);
  printf("  heads      %d of size %d, %d for keys and values\n", i->num_attention_heads,
         i->head_dim, i->num_key_value_heads);
  printf("  positions  %d\n", i->max_position_embeddings);
  printf("  vocabulary %d ids, end of text %s\n", i->vocab_size, ends);
  const tg_generation_config c = tg_model_get_generation_config(model);
  printf("  sampling   temperature %g, top-k %d, top-p %g, min-p %g, repetition penalty %g (%s)\n",
         (double)c.temperature, c.top_k, (double)c.top_p, (double)c.min_p,
         (double)c.repetition_penalty,
         c.given ? "generation_config.json" : "no generation_config.json");
  printf("  tokenizer  %s\n", tokenizer);
}

static json_t *describe_devices(void)
{
  json_t *all = json_array();
  const int count = tg_device_count();
  for (int i = 0; i < count; i++) {
    tg_device_info d;
    if (tg_device_get_info(i, &d, NULL) != TG_OK) {
      continue;
    }
    json_t *one = json_object();
    json_object_set_new(one, "index", json_integer(i));
    json_object_set_new(one, "name", json_string(d.name));
    json_object_set_new(one, "compute_capability", json_integer(d.compute_capability));
    json_object_set_new(one, "multiprocessors", json_integer(d.multiprocessors));
    json_object_set_new(one, "shared_bytes", json_integer(d.shared_bytes));
    json_object_set_new(one, "l2_bytes", json_integer(d.l2_bytes));
    json_object_set_new(one, "memory_bytes", json_integer(d.memory_bytes));
    json_object_set_new(one, "free_bytes", json_integer(d.free_bytes));
    json_object_set_new(one, "peak_bytes_per_s", json_real(d.peak_bytes_per_s));
    json_object_set_new(one, "peak_bf16_flops", json_real(d.peak_bf16_flops));
    tgi_gpu_roof roof;
    if (d.supported && tgi_gpu_roof_measure(i, TG_BF16, &roof, NULL) == TG_OK) {
      json_object_set_new(one, "copy_bytes_per_s", json_real(roof.bytes_per_s));
      json_object_set_new(one, "bf16_flops", json_real(roof.product_flops));
    }
    json_object_set_new(one, "supported", json_boolean(d.supported));
    json_object_set_new(one, "kernels", json_string(d.kernels));
    json_object_set_new(one, "reason", json_string(d.reason));
    if (d.supported) {
      json_object_set_new(one, "plans", describe_plans(i));
    }
    json_array_append_new(all, one);
  }
  return all;
}

static void write_machine(json_t *w, const machine *m)
{
  const tgi_processor *p = &m->processor;
  json_object_set_new(w, "version", json_string(tg_version()));
  json_object_set_new(w, "cpu", json_string(m->cpu));
  json_t *features = json_array();
  if (p->avx2) {
    json_array_append_new(features, json_string("avx2"));
  }
  if (p->avx512) {
    json_array_append_new(features, json_string("avx512"));
  }
  if (p->avx512_bf16) {
    json_array_append_new(features, json_string("avx512_bf16"));
  }
  if (p->avx512_vnni) {
    json_array_append_new(features, json_string("avx512_vnni"));
  }
  json_object_set_new(w, "features", features);
  json_t *chain = json_array();
  for (int i = 0; i < m->ctx->chain.length; i++) {
    json_array_append_new(chain, json_string(m->ctx->chain.entry[i]));
  }
  json_object_set_new(w, "chain", chain);
  json_object_set_new(w, "entry", json_string(tg_context_entry(m->ctx)));
  json_object_set_new(w, "l1d_bytes", json_integer((int64_t)p->l1d_bytes));
  json_object_set_new(w, "l2_bytes", json_integer((int64_t)p->l2_bytes));
  json_object_set_new(w, "l3_bytes", json_integer((int64_t)p->l3_bytes));
  json_object_set_new(w, "threads", json_integer(tg_context_num_threads(m->ctx)));
  json_object_set_new(w, "cpus", json_integer(tgi_processor_count()));
  json_object_set_new(w, "memory_bytes", json_integer((int64_t)m->memory));
  json_object_set_new(w, "available_bytes", json_integer((int64_t)m->available));
  json_object_set_new(w, "devices", describe_devices());
}

static json_t *describe_generation(const tg_model *model)
{
  const tg_generation_config c = tg_model_get_generation_config(model);
  json_t *j = json_object();
  json_object_set_new(j, "given", json_boolean(c.given));
  json_object_set_new(j, "temperature", json_real((double)c.temperature));
  json_object_set_new(j, "top_k", json_integer(c.top_k));
  json_object_set_new(j, "top_p", json_real((double)c.top_p));
  json_object_set_new(j, "min_p", json_real((double)c.min_p));
  json_object_set_new(j, "repetition_penalty", json_real((double)c.repetition_penalty));
  json_object_set_new(j, "max_new_tokens", json_integer(c.max_new_tokens));
  return j;
}

static void write_model(json_t *w, const char *directory, const tg_model *from,
                        const char *tokenizer)
{
  const tg_model_info info = tg_model_get_info(from), *i = &info;
  json_t *model = json_object(), *ends = json_array();
  int64_t num_ends;
  const int32_t *end = tg_model_eos_token_ids(from, &num_ends);
  for (int64_t k = 0; k < num_ends; k++) {
    json_array_append_new(ends, json_integer(end[k]));
  }
  json_object_set_new(model, "directory", json_string(directory));
  json_object_set_new(model, "model_type", json_string(i->model_type));
  json_object_set_new(model, "dtype", json_string(tg_dtype_name(i->dtype)));
  json_object_set_new(model, "parameters", json_integer(i->num_parameters));
  json_object_set_new(model, "weight_bytes", json_integer((int64_t)i->weight_bytes));
  json_object_set_new(model, "num_hidden_layers", json_integer(i->num_hidden_layers));
  json_object_set_new(model, "hidden_size", json_integer(i->hidden_size));
  json_object_set_new(model, "intermediate_size", json_integer(i->intermediate_size));
  json_object_set_new(model, "num_experts", json_integer(from->config.num_experts));
  json_object_set_new(model, "experts_per_token", json_integer(from->config.experts_per_token));
  json_object_set_new(model, "mxfp4_experts", json_boolean(tgi_model_keeps_mxfp4(from)));
  json_object_set_new(model, "sliding_window", json_integer(from->config.sliding_window));
  json_object_set_new(model, "sliding_layers", json_integer(count_sliding(&from->config)));
  json_object_set_new(model, "num_attention_heads", json_integer(i->num_attention_heads));
  json_object_set_new(model, "num_key_value_heads", json_integer(i->num_key_value_heads));
  json_object_set_new(model, "head_dim", json_integer(i->head_dim));
  json_object_set_new(model, "max_position_embeddings", json_integer(i->max_position_embeddings));
  json_object_set_new(model, "vocab_size", json_integer(i->vocab_size));
  json_object_set_new(model, "end_of_text", json_integer(i->end_of_text));
  json_object_set_new(model, "eos_token_ids", ends);
  json_object_set_new(model, "generation", describe_generation(from));
  json_object_set_new(model, "tokenizer", json_string(tokenizer));
  json_object_set_new(w, "model", model);
}

/* Whether a tokenizer's file of this name lies there. */
static bool has_file(const char *directory, const char *name)
{
  char *path = tgi_path_in(directory, name);
  const bool has = path && access(path, F_OK) == 0;
  free(path);
  return has;
}

/* Whether `generate` can encode text for the directory. */
static void describe_tokenizer(const char *directory, char *text, size_t bytes)
{
  tg_tokenizer *tokenizer = NULL;
  tg_error error;
  if (tg_tokenizer_load(directory, &tokenizer, &error) == TG_OK) {
    snprintf(text, bytes, "byte-level BPE, %d ids", tg_tokenizer_vocab_size(tokenizer));
  } else if (has_file(directory, "tokenizer.json") || has_file(directory, "tokenizer.model") ||
             has_file(directory, "vocab.json") || has_file(directory, "merges.txt")) {
    snprintf(text, bytes, "unsupported: %s", error.text);
  } else {
    snprintf(text, bytes, "none");
  }
  tg_tokenizer_destroy(tokenizer);
}

static tg_status report(const machine *m, const char *directory, bool json, tg_error *error)
{
  tgi_model_path path;
  tg_model *model = NULL;
  char tokenizer[600] = "";
  if (directory) {
    tg_status status = tgi_model_path_find(directory, &path, error);
    status = status ? status : tgi_model_describe(path.text, &model, error);
    if (status != TG_OK) {
      return status;
    }
    directory = path.text;
    describe_tokenizer(directory, tokenizer, sizeof tokenizer);
  }
  if (json) {
    json_t *w = tgi_json_new();
    write_machine(w, m);
    if (directory) {
      write_model(w, directory, model, tokenizer);
    }
    tgi_json_print(w, JSON_INDENT(2));
  } else {
    print_machine(m);
    if (directory) {
      print_model(directory, model, tokenizer);
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
