#!/bin/sh
# Lists the C, C++ and CUDA files of the project, one per line.
cd "$(dirname "$0")/.."
find include src python tests bench fuzz examples lab -type f \
  \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | LC_ALL=C sort
