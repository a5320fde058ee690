/** A model of bytes with chance weights in a scratch directory. After cmocka.h. */
#ifndef TEGULA_TESTS_CLI_CHANCE_MODEL_H
#define TEGULA_TESTS_CLI_CHANCE_MODEL_H

#include "expect.h"
#include "scratch_directory.h"
#include "tegula/model.h"
#include <stdio.h>

static scratch dir;
static char model[SCRATCH_PATH];

static inline int make_model(void **state)
{
  (void)state;
  tg_model *made = NULL;
  tg_tokenizer *tokenizer = NULL;
  tg_error error = {0};
  dir = scratch_make();
  snprintf(model, sizeof model, "%s", scratch_file(&dir, "model"));
  EXPECT_OK(tg_model_create("gpt_nano", 257, 3, &made, &error), error);
  EXPECT_OK(tg_tokenizer_create_bytes(&tokenizer, &error), error);
  EXPECT_OK(tg_model_save(made, &(tg_save_options){.tokenizer = tokenizer}, model, &error), error);
  tg_tokenizer_destroy(tokenizer);
  tg_model_destroy(made);
  return 0;
}

static inline int remove_model(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

#endif
