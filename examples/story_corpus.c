/* Writes a corpus of small stories from a seeded grammar, and judges text against that grammar.
 *
 *   story_corpus write SEED BYTES   stories of at least that many bytes, "<|endoftext|>" after each
 *   story_corpus entropy            the entropy of the stories in bits per byte
 *   story_corpus words [LIMIT]      the share of the words on standard input that the grammar has
 *   story_corpus check SEED COUNT   proves on COUNT stories that each has one derivation and that
 *                                   their mean surprise is the entropy
 *
 * `make demo` shows how the parts are used.
 */
#include "story_grammar.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kUsage = 2, kMaxInput = 1 << 20 };

static int finish(int code)
{
  if (fflush(stdout) != 0 || ferror(stdout)) {
    perror("story_corpus: standard output");
    return EXIT_FAILURE;
  }
  return code;
}

static int write_corpus(uint64_t seed, uint64_t least_bytes)
{
  char text[STORY_MAX_BYTES];
  uint64_t state = seed;
  for (uint64_t written = 0; written < least_bytes && !ferror(stdout);) {
    written += story_write(&state, text);
    printf("%s<|endoftext|>", text);
  }
  return finish(EXIT_SUCCESS);
}

/* The mark after each story is no text: it has no bytes, and no choice leads to it. */
static int print_entropy(void)
{
  double bits, bytes;
  story_measure(&bits, &bytes);
  printf("%.4f\n", bits / bytes);
  fprintf(stderr, "%.2f bits and %.2f bytes a story on average, %zu distinct words\n", bits, bytes,
          story_words());
  return finish(EXIT_SUCCESS);
}

static int judge_words(uint64_t limit)
{
  char *input = malloc(kMaxInput + 1);
  if (!input) {
    perror("story_corpus");
    return EXIT_FAILURE;
  }
  input[fread(input, 1, kMaxInput, stdin)] = '\0';
  const char *at = input;
  uint64_t words = 0, known = 0;
  for (size_t size; words < limit && (size = story_next_word(&at)) > 0; at += size) {
    words++;
    known += story_knows(at, size);
  }
  printf("%llu of %llu words known, %.1f %%\n", (unsigned long long)known,
         (unsigned long long)words, words ? 100.0 * (double)known / (double)words : 0.0);
  free(input);
  return finish(EXIT_SUCCESS);
}

static int check_grammar(uint64_t seed, uint64_t count)
{
  char text[STORY_MAX_BYTES];
  uint64_t state = seed;
  double bits, bytes, sum = 0, squares = 0;
  story_measure(&bits, &bytes);
  for (uint64_t i = 0; i < count; i++) {
    double own;
    story_write(&state, text);
    const int64_t derivations = story_derivations(text, &own);
    if (derivations != 1) {
      fprintf(stderr, "story_corpus: expected one derivation, got %lld: %s\n",
              (long long)derivations, text);
      return EXIT_FAILURE;
    }
    sum += own;
    squares += own * own;
  }
  const double n = (double)count, mean = sum / n;
  const double error = sqrt((squares / n - mean * mean) / n);
  printf("%llu stories: one derivation each; %.2f +- %.2f bits a story, %.2f by the rules\n",
         (unsigned long long)count, mean, error, bits);
  return finish(fabs(mean - bits) <= 4 * error ? EXIT_SUCCESS : EXIT_FAILURE);
}

static uint64_t parse_number(const char *text)
{
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno) {
    fprintf(stderr, "story_corpus: expected a number, got \"%s\"\n", text);
    exit(kUsage);
  }
  return value;
}

int main(int argc, char **argv)
{
  const char *command = argc > 1 ? argv[1] : "";
  if (strcmp(command, "write") == 0 && argc == 4) {
    return write_corpus(parse_number(argv[2]), parse_number(argv[3]));
  }
  if (strcmp(command, "entropy") == 0 && argc == 2) {
    return print_entropy();
  }
  if (strcmp(command, "words") == 0 && argc <= 3) {
    return judge_words(argc == 3 ? parse_number(argv[2]) : UINT64_MAX);
  }
  if (strcmp(command, "check") == 0 && argc == 4) {
    const uint64_t count = parse_number(argv[3]);
    if (count > 0) {
      return check_grammar(parse_number(argv[2]), count);
    }
  }
  fputs("usage: story_corpus write SEED BYTES | entropy | words [LIMIT] | check SEED COUNT\n",
        stderr);
  return kUsage;
}
