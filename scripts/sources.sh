#!/bin/sh
# Lists the C and C++ files of the project, one per line.
cd "$(dirname "$0")/.."
find include src tests bench fuzz examples lab -type f \
  \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) 2>/dev/null | LC_ALL=C sort
