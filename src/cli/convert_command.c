/* tegula convert: a model directory in another dtype, or in shards of another size. */
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "files/hub_name.h"
#include "option_table.h"
#include "tegula/model.h"
#include "tegula/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kName[] = "tegula convert";

typedef struct options {
  const char *dtype, *max_shard_size;
  bool overwrite, quiet;
} options;

#define ROW(name, field, argument, kind, help)                                                     \
  {                                                                                                \
    name, argument, TGI_AT(options, field), 0, 0, help, TGI_OPTION_##kind, 0                       \
  }

static const tgi_option rows[] = {
    ROW("dtype", dtype, "DTYPE", TEXT,
        "dtype of the weights in OUT: f32, f16 or bf16 (what the files of DIR hold, MXFP4 too)"),
    ROW("max-shard-size", max_shard_size, "SIZE", TEXT,
        "largest file of weights: bytes, or with KB, MB, GB, KiB, MiB or GiB (5GB)"),
    ROW("overwrite", overwrite, NULL, FLAG, "replace the model in OUT"),
    ROW("quiet", quiet, NULL, FLAG, "print nothing"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula convert",
    .positions = "DIR OUT",
    .help = "Write the model in the Hugging Face directory DIR to OUT, in another dtype or in "
            "shards of another size.\vOUT is replaced as a whole. Weights are rounded to nearest "
            "even. Checkpoints of PyTorch (.pt, .bin) are converted by `python -m tegula.convert'.",
    .options = rows,
    .most_positions = 2,
};

/* "5GB"; false: another text, or no bytes. */
static bool parse_size(const char *text, int64_t *bytes)
{
  static const struct {
    const char *name;
    double factor;
  } units[] = {{"", 1},     {"B", 1},         {"KB", 1e3},      {"MB", 1e6},
               {"GB", 1e9}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  char *end;
  errno = 0;
  const double number = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    const double size = number * units[i].factor;
    if (end != text && strcmp(end, units[i].name) == 0 && size >= 1 && size < 9e18) {
      *bytes = (int64_t)size;
      return true;
    }
  }
  return false;
}

static tg_status check_target(const char *out, bool overwrite, tg_error *error)
{
  char path[4096];
  if (snprintf(path, sizeof path, "%s/config.json", out) >= (int)sizeof path) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "OUT: expected a shorter path, got %zu bytes",
                         strlen(out));
  }
  if (!overwrite && access(path, F_OK) == 0) {
    return tgi_error_set(error, TG_IO,
                         "OUT: expected a directory without a model (or --overwrite), got the "
                         "model in %s",
                         out);
  }
  return TG_OK;
}

/* Without a tokenizer that can be read there is still a model to convert. */
static tg_tokenizer *find_tokenizer(const char *directory, bool quiet)
{
  tg_tokenizer *tokenizer = NULL;
  tg_error error;
  if (tg_tokenizer_load(directory, &tokenizer, &error) != TG_OK && !quiet) {
    fprintf(stderr, "no tokenizer is written: %s\n", error.text);
  }
  return tokenizer;
}

static tg_status convert(const char *from, const char *out, const options *o, tg_save_options *save,
                         tg_error *error)
{
  tgi_model_path path;
  tg_model *model = NULL;
  tg_status status = check_target(out, o->overwrite, error);
  status = status ? status : tgi_model_path_find(from, &path, error);
  status = status ? status : tg_model_load(path.text, save->dtype, &model, error);
  if (status == TG_OK && save->dtype) { /* all weights, then, those in MXFP4 too */
    status = tg_model_dequantize(model, error);
  }
  if (status != TG_OK) {
    tg_model_destroy(model);
    return status;
  }
  tg_tokenizer *tokenizer = find_tokenizer(path.text, o->quiet);
  save->tokenizer = tokenizer;
  status = tg_model_save(model, save, out, error);
  if (status == TG_OK && !o->quiet) {
    const tg_model_info info = tg_model_get_info(model);
    fprintf(stderr, "%s: %s, %.2f M parameters, %s in %s\n", out, info.model_type,
            (double)info.num_parameters / 1e6, tgi_size((double)info.weight_bytes).text,
            tg_dtype_name(info.dtype));
  }
  tg_tokenizer_destroy(tokenizer);
  tg_model_destroy(model);
  return status;
}

int tgi_convert_command(int argc, char **argv)
{
  options o = {0};
  tgi_parsed given;
  tg_save_options save = {0};
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (given.num_positions != 2) {
    return tgi_usage_error(&command_line, "expected DIR and OUT, got %d of them",
                           given.num_positions);
  }
  save.dtype = o.dtype ? tgi_option_dtype(o.dtype) : TG_DTYPE_NONE;
  if (o.dtype && save.dtype == TG_DTYPE_NONE) {
    return tgi_usage_error(&command_line, "--dtype: expected f32, f16 or bf16, got %s", o.dtype);
  }
  if (o.max_shard_size && !parse_size(o.max_shard_size, &save.max_shard_bytes)) {
    return tgi_usage_error(&command_line, "--max-shard-size: expected a size such as 5GB, got %s",
                           o.max_shard_size);
  }
  const tg_status status = convert(given.position[0], given.position[1], &o, &save, &error);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
