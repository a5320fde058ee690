#include "train_options.h"

#include "model/preset.h"
#include <string.h>

#define ROW(name, field, argument, kind, min, max, help)                                           \
  {                                                                                                \
    name, argument, TGI_AT(tgi_train_options, field), min, max, help, TGI_OPTION_##kind, 0         \
  }

static const tgi_option rows[] = {
    ROW("train-file", train_file, "FILE", TEXT, 0, 0,
        "what to train on: UTF-8 text, lines of JSON with \"text\" or \"messages\" (.jsonl), or "
        "ids "
        "(.bin, of tokenize --out or llm.c). A pattern such as 'part-*.bin' stands for several"),
    ROW("out", out, "DIR", TEXT, 0, 0, "directory of the checkpoint, which transformers can load"),
    ROW("preset", preset, "NAME", TEXT, 0, 0,
        "train a new model of this preset: gpt_nano, gpt_micro, gpt_mini, gpt2, gpt2-medium, "
        "gpt2-large, gpt2-xl, gpt_tile_small, gpt_tile_medium, gpt_tile_large; qwen3_nano, "
        "qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b; qwen2.5-0.5b; "
        "llama-3.2-1b, llama-3.2-3b, llama-3.1-8b; qwen3_moe_nano, qwen3-30b-a3b, "
        "qwen3-235b-a22b; mixtral-8x7b; gpt_oss_nano, gpt-oss-20b, gpt-oss-120b"),
    ROW("vocab-size", vocab_size, "N", I32, 257, TGI_ANY_I32,
        "vocabulary size of a new model (257: one id per byte, and end of text)"),
    {"model", "DIR", TGI_AT(tgi_train_options, model), 0, 0,
     "fine-tune the model in this Hugging Face directory", TGI_OPTION_TEXT, 'm'},
    ROW("resume", resume, NULL, FLAG, 0, 0,
        "continue from the checkpoint in --out. Other options default to the checkpoint's; those "
        "that would change the steps done must not differ from it"),
    ROW("val-file", val_file, "FILE", TEXT, 0, 0, "what to validate on, of any of these kinds"),
    ROW("pack", pack, "HOW", TEXT, 0, 0,
        "rows of a batch: off (one document each), concat (one stream, cut anywhere) or documents "
        "(several documents, each seeing itself alone) (documents for messages, else concat)"),
    ROW("long-documents", long_documents, "RULE", TEXT, 0, 0,
        "documents longer than a row: cut (their end is left out), split or error (cut with --pack "
        "off, else split)"),
    TGI_TEMPLATE_ROWS(tgi_train_options, of_template),
    ROW("trust-content", trust_content, NULL, FLAG, 0, 0,
        "text of special tokens in what users and tools wrote becomes such tokens"),
    ROW("no-cache", no_cache, NULL, FLAG, 0, 0,
        "keep tokens in memory, not in a file in TEGULA_CACHE_DIR or the user's cache directory"),
    ROW("show-data", show_data, "N", I64, 1, TGI_ANY_I64,
        "print the first N documents as JSON, with their ids and which of them are targets, and "
        "train nothing"),
    ROW("val-fraction", val_fraction, "X", F64, 0, 0.5,
        "without --val-file: fraction of the training text, at its end, to validate on (0.1)"),
    ROW("steps", steps, "N", I64, 1, TGI_ANY_I64,
        "optimiser steps (1000). With --resume, a larger number than that of a finished run "
        "extends it"),
    ROW("batch", batch, "N", I32, 1, 1 << 20, "sequences per step (8)"),
    ROW("micro-batch", micro_batch, "N", I32, 1, 1 << 20,
        "sequences per pass, a divisor of --batch: less memory, and the same step but for rounding "
        "and for the auxiliary loss of routers (--batch)"),
    ROW("seq", seq, "N", I32, 1, 1 << 24,
        "tokens per sequence (256, or the model's positions if fewer)"),
    ROW("lr", lr, "X", F64, TGI_ABOVE_0, TGI_ANY_F64, "peak learning rate (0.001)"),
    ROW("schedule", schedule, "NAME", TEXT, 0, 0,
        "of the learning rate after the warm-up: cosine, constant, linear or wsd (cosine)"),
    ROW("decay-fraction", decay_fraction, "X", F64, TGI_ABOVE_0, 1,
        "with --schedule wsd: fraction of --steps, at their end, in which the learning rate falls "
        "(0.2)"),
    ROW("min-lr", min_lr, "X", F64, 0, TGI_ANY_F64, "learning rate at the end (a tenth of --lr)"),
    ROW("warmup", warmup, "N", I64, 0, TGI_ANY_I64,
        "steps of linear warm-up to the peak (a twentieth of --steps)"),
    ROW("weight-decay", weight_decay, "X", F64, 0, TGI_ANY_F64,
        "weight decay of matrices and embeddings (0.1)"),
    ROW("clip", clip, "X", F64, 0, TGI_ANY_F64, "clip gradients to this norm; 0: never (1)"),
    ROW("freeze-experts", freeze_experts, NULL, FLAG, 0, 0,
        "train all but the matrices of experts, which need no gradients and no optimiser state"),
    ROW("router-aux-loss", router_aux_loss, "X", F64, 0, TGI_ANY_F64,
        "weight of the loss that balances the routers of experts (router_aux_loss_coef of "
        "config.json if it says output_router_logits, else 0)"),
    ROW("dtype", dtype, "DTYPE", TEXT, 0, 0,
        "dtype of weights and activations in the passes: f32 or bf16. With bf16 the optimiser "
        "updates and saves f32 weights (f32)"),
    ROW("seed", seed, "N", I64, 0, TGI_ANY_I64,
        "seed of the initial weights and of the order of the text (0)"),
    ROW("threads", threads, "N", I32, 1, 4096,
        "CPU threads (one per CPU); the result is bit-identical at any number"),
    ROW("device", device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("eval-every", eval_every, "N", I64, 0, TGI_ANY_I64,
        "steps between validations; 0: only at the end (100)"),
    ROW("eval-tokens", eval_tokens, "N", I64, 0, TGI_ANY_I64,
        "validate on at most N tokens; 0: on all (131072)"),
    ROW("save-every", save_every, "N", I64, 0, TGI_ANY_I64,
        "steps between checkpoints; 0: only at the end (250)"),
    ROW("keep", keep, "N", I32, 0, 1 << 20,
        "keep the last N checkpoints as <out>-step-<step>, beside the newest in --out; 0: none "
        "(0)"),
    ROW("sample-every", sample_every, "N", I64, 0, TGI_ANY_I64,
        "steps between texts that the model writes, to standard error and the log; 0: none (0)"),
    ROW("sample-prompt", sample_prompt, "TEXT", TEXT, 0, 0,
        "what such a text begins with (the token that begins a text)"),
    ROW("log", log, "FILE", TEXT, 0, 0, "log with one JSON object per line and step (<out>.jsonl)"),
    ROW("quiet", quiet, NULL, FLAG, 0, 0, "print errors only"),
    {0},
};

const tgi_command tgi_train_command_line = {
    .name = "tegula train",
    .help =
        "Train a model on text or conversations. A new model uses byte-level tokens; with --model "
        "the directory's "
        "tokenizer is used."
        "\v"
        "The memory plan and then the progress line are printed on standard error. Ctrl-C finishes "
        "the step, saves a checkpoint and exits with 130. A second Ctrl-C exits at once and keeps "
        "the last checkpoint. A loss that is not finite stops the run with exit code 1 and keeps "
        "the last checkpoint.",
    .options = rows,
};

bool tgi_train_dtype_known(const char *dtype)
{
  return dtype && (tgi_option_dtype(dtype) == TG_F32 || tgi_option_dtype(dtype) == TG_BF16);
}

tg_schedule tgi_train_schedule(const char *name)
{
  static const struct {
    const char *name;
    tg_schedule schedule;
  } known[] = {{"cosine", TG_SCHEDULE_COSINE},
               {"constant", TG_SCHEDULE_CONSTANT},
               {"linear", TG_SCHEDULE_LINEAR},
               {"wsd", TG_SCHEDULE_WSD}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strcmp(known[i].name, name) == 0) {
      return known[i].schedule;
    }
  }
  return (tg_schedule)0;
}

int tgi_train_check_preset(const tgi_command *command, const char *preset)
{
  tgi_config config;
  tg_error error;
  return preset && tgi_preset(preset, 0, &config, &error) != TG_OK
             ? tgi_usage_error(command, "--%s", error.text)
             : 0;
}

tgi_train_options tgi_train_defaults(void)
{
  return (tgi_train_options){.dtype = "f32",
                             .schedule = "cosine",
                             .decay_fraction = 0.2,
                             .val_fraction = 0.1,
                             .steps = 1000,
                             .batch = 8,
                             .lr = 1e-3,
                             .min_lr = -1,
                             .warmup = -1,
                             .weight_decay = 0.1,
                             .clip = 1.0,
                             .router_aux_loss = -1,
                             .eval_every = 100,
                             .eval_tokens = 131072,
                             .save_every = 250};
}
