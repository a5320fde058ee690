/**
 * Patterns of tokenizer.json (regular expressions for Oniguruma) rewritten for PCRE2. What is
 * parsed here means the same in both, or is rewritten until it does; all else is refused, so that
 * this is the list of what is supported:
 *
 *   a  \r \n \t \.         a character, \ before ASCII punctuation
 *   [...] [^...]           characters, ranges, and the three below
 *   \s  \S                 25 code points of white space (PCRE2 has U+180E too)
 *   \d  \p{..}             Nd; L Lu Ll Lt Lm Lo M N Nd P S. Their code points are those of the
 *                          Unicode that PCRE2 has: late_points.h shows it what it does not know
 *   (...) (?:...) a|b      groups
 *   (?=...) (?!...)        what must, or must not, follow
 *   (?i:...)               ASCII letters of either case, but for pairs that one character may stand
 *                          for (Oniguruma finds a sharp s for "ss")
 *   ? * + {n} {n,} {n,m}   repeated as often as possible; ?+ *+ ++ without giving any back.
 *                          Behind a group only ?, so that no pattern takes exponential time
 *
 * A pattern must not match the empty text. One with \d or \p must have ASCII characters only beside
 * them.
 */
#ifndef TGI_TEXT_PATTERN_REWRITE_H
#define TGI_TEXT_PATTERN_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tgi_rewritten {
  char *text; /* for PCRE2_UTF | PCRE2_UCP, to be freed; NULL: refused, or no memory */
  size_t size;
  bool classes;     /* it looks at classes of Unicode */
  const char *rule; /* of a refusal: what was expected; NULL: no memory */
  size_t byte;      /* of a refusal: where in the pattern */
} tgi_rewritten;

/** Rewrites a pattern, valid UTF-8. */
tgi_rewritten tgi_pattern_rewrite(const char *pattern, size_t size);

#endif
