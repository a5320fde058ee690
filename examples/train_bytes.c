/* A training loop: a byte-level GPT learns a text and continues it. The runtime's trainer does
 * forward, backward and AdamW; the loop chooses the batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tegula/model.h>
#include <tegula/train.h>

enum { kRows = 4, kLength = 48, kSteps = 300 };

static const char kText[] =
    "The tile is laid, the roof is tight, the rain runs down it day and night. "
    "The tile is old, the roof is sound, and not a drop falls on the ground. ";

static void check(tg_status status, const tg_error *error)
{
  if (status != TG_OK) {
    fprintf(stderr, "%s\n", error->text);
    exit(1);
  }
}

/* Rows of the text from places that follow from the step; every target is the byte behind it. */
static void fill(int step, const int32_t *ids, int64_t count, int32_t *tokens, int32_t *targets)
{
  for (int r = 0; r < kRows; r++) {
    const int64_t start = (int64_t)(step * kRows + r) * 37 % (count - kLength);
    memcpy(tokens + r * kLength, ids + start, kLength * sizeof *tokens);
    memcpy(targets + r * kLength, ids + start + 1, kLength * sizeof *targets);
  }
}

static void train(tg_model *model, const int32_t *ids, int64_t count)
{
  const tg_trainer_options options = {.batch_size = kRows,
                                      .sequence_length = kLength,
                                      .num_steps = kSteps,
                                      .warmup_steps = 15,
                                      .learning_rate = 4e-3,
                                      .min_learning_rate = 4e-4,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .max_grad_norm = 1};
  static int32_t tokens[kRows * kLength], targets[kRows * kLength];
  tg_trainer *trainer;
  tg_step_result result;
  tg_error error;
  check(tg_trainer_create(model, &options, &trainer, &error), &error);
  for (int step = 0; step < kSteps; step++) {
    const tg_train_batch batch = {.tokens = tokens, .targets = targets};
    fill(step, ids, count, tokens, targets);
    check(tg_trainer_step(trainer, &batch, &result, &error), &error);
    if (step == 0) {
      printf("loss of step 1: %.1f\n", result.loss);
    }
  }
  printf("loss of step %d: %s\n", kSteps, result.loss < 0.3 ? "below 0.3" : "0.3 or more");
  tg_trainer_destroy(trainer);
}

static bool print_byte(void *tokenizer, int32_t id)
{
  const tg_token token = tg_tokenizer_piece(tokenizer, id);
  printf("%.*s", (int)token.size, token.bytes);
  return true;
}

static void continue_text(const tg_model *model, tg_tokenizer *tokenizer, const int32_t *ids)
{
  const tg_generate_options options = {.max_new_tokens = 27}; /* a temperature of 0: greedy */
  tg_session *session;
  tg_error error;
  check(tg_session_create(model, &(tg_session_options){.max_tokens = 0}, &session, &error), &error);
  check(tg_session_feed(session, ids, 12, &error), &error);
  printf("%.12s|", kText);
  check(tg_session_generate(session, &options, print_byte, tokenizer, &error), &error);
  printf("|\n");
  tg_session_destroy(session);
}

int main(void)
{
  static int32_t ids[sizeof kText];
  size_t count;
  tg_tokenizer *tokenizer;
  tg_model *model;
  tg_error error;
  check(tg_tokenizer_create_bytes(&tokenizer, &error), &error);
  check(
      tg_tokenizer_encode(tokenizer, kText, sizeof kText - 1, 0, ids, sizeof kText, &count, &error),
      &error);
  check(tg_model_create("gpt_nano", tg_tokenizer_vocab_size(tokenizer), 1, &model, &error), &error);
  train(model, ids, (int64_t)count);
  continue_text(model, tokenizer, ids);
  tg_model_destroy(model);
  tg_tokenizer_destroy(tokenizer);
  return 0;
}

/* Prints:
 * loss of step 1: 5.5
 * loss of step 300: below 0.3
 * The tile is |old, the roof is sound, and|
 */
