#!/bin/sh
# Every C file is as clang-format-14 writes it. Cure: make format.
cd "$(dirname "$0")/../.."
if ! scripts/sources.sh | xargs clang-format-14 --dry-run -Werror; then
  echo "format: run 'make format'"
  exit 1
fi
