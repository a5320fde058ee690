#!/bin/sh
# Lines that the C tests execute: a summary here, details in build/coverage/coverage.html.
set -eu
cd "$(dirname "$0")/.."
cmake --preset coverage >/dev/null
cmake --build build/coverage
find build/coverage -name '*.gcda' -delete
ctest --preset coverage -j "$(nproc)"
gcovr --root . --filter src/ --exclude-unreachable-branches --gcov-ignore-parse-errors \
  --html-details build/coverage/coverage.html --print-summary build/coverage
