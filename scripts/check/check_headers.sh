#!/bin/sh
# Each public header compiles alone, as C17 and as C++17, with gcc and clang.
cd "$(dirname "$0")/../.."
failed=0
for header in include/tegula/*.h; do
  for compiler in "gcc -std=c17 -xc" "clang-14 -std=c17 -xc" "g++ -std=c++17 -xc++" \
    "clang-14 -std=c++17 -xc++"; do
    # A header is a main file here, for which "#pragma once" and unused statics would be noted.
    # shellcheck disable=SC2086 # words
    if ! echo "#include \"$header\"" |
      $compiler -fsyntax-only -I. -Iinclude -Wall -Wextra -Wpedantic -Wshadow -Werror -; then
      echo "headers: $header does not compile alone with $compiler"
      failed=1
    fi
  done
done
exit $failed
