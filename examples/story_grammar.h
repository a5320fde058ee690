/**
 * A grammar of small English stories: what `make demo` trains on.
 *
 * A rule is a list of alternatives of equal probability, parted by '|'. `{name}` in an alternative
 * stands for a choice of that rule. A cast rule is chosen once for a story and keeps its value;
 * fields of an alternative are parted by '/', and `{name.1}` asks for the second.
 *
 * No text has two derivations, so the probability of a story is the product of its choices, and the
 * entropy of the stories is a sum over the rules. Every cast rule is mentioned in the opening, so
 * that nothing is chosen that cannot be read.
 */
#ifndef EXAMPLES_STORY_GRAMMAR_H
#define EXAMPLES_STORY_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct story_rule {
  const char *name;
  bool cast;
  const char *alternatives;
} story_rule;

extern const story_rule story_rules[]; /* ended by a NULL name; the first is the whole story */

enum { STORY_MAX_BYTES = 1024 };

/** Writes a story and returns its length. *state: a splitmix64 generator. */
size_t story_write(uint64_t *state, char text[STORY_MAX_BYTES]);

/** Entropy of a story in bits, and the number of its bytes on average: exact. */
void story_measure(double *bits, double *bytes);

/**
 * Number of derivations of `text` (0: no story of the grammar); *bits gets -log2 of the probability
 * of the last one found.
 */
int64_t story_derivations(const char *text, double *bits);

/** Whether the `size` letters at `word` are a word of the grammar; upper and lower case are one. */
bool story_knows(const char *word, size_t size);

/** Distinct words of the grammar. */
size_t story_words(void);

/** The next word at or after *text: a run of letters. Its length; 0 at the end. */
size_t story_next_word(const char **text);

#endif
