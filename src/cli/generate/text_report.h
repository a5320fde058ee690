/** What a generated text is reported with: timings, as lines for people and as JSON. */
#ifndef TGI_CLI_TEXT_REPORT_H
#define TGI_CLI_TEXT_REPORT_H

#include "files/json_file.h"
#include "text_run.h"

/** Of one text, or summed over several. */
typedef struct tgi_timings {
  int64_t cache_n; /* of the prompt, found instead of evaluated */
  int64_t prompt_n, predicted_n;
  int64_t passes; /* over one token, which were this text's alone; 0: others shared them */
  double prompt_ms, predicted_ms;
  double load_ms;
  double pass_bytes; /* that the passes read, in all */
  double read_speed; /* bytes per second, measured; 0: unknown */
} tgi_timings;

/** Adds a text. */
void tgi_timings_add(tgi_timings *t, const tgi_text_run *r);

/**
 * An object with the names of llama-server's timings (cache_n, prompt_n, prompt_ms,
 * prompt_per_token_ms, prompt_per_second, predicted_n, ...) and load_ms, bytes_per_token, gbps,
 * read_gbps and read_share. What is unknown is null. As for jansson's functions, memory is looked
 * at by tgi_json_text.
 */
json_t *tgi_timings_json(const tgi_timings *t);

/** "load: 12 ms | prompt: 3 tokens in 4.0 ms (750 tok/s) | generated: ..." without a newline. */
void tgi_timings_print(const tgi_timings *t);

/** An object of a text: text, ids, finish_reason, logprobs if there are any, timings. */
json_t *tgi_text_json(const tgi_text_run *r, const tgi_timings *t);

#endif
