#!/bin/sh
# cppcheck finds nothing. Each file is read as one entry of the chain compiles it.
cd "$(dirname "$0")/.."
mkdir -p build/cppcheck
scripts/sources.sh | grep '^\(src\|tests\|bench\|fuzz\|examples\)/.*\.c$' >build/cppcheck/files
cppcheck --quiet --error-exitcode=1 -j "$(nproc)" --cppcheck-build-dir=build/cppcheck \
  --file-list=build/cppcheck/files --std=c11 --language=c --inline-suppr \
  --enable=warning,performance,portability \
  --suppress=missingIncludeSystem --suppress=unmatchedSuppression --suppress=uninitdata --suppress=uninitvar --suppress=internalAstError --suppress=ctunullpointer \
  -Iinclude -Isrc -Itests -DTGI_ENTRY=generic -DTGI_HAVE_X86 -DTGI_THREADS_OPENMP \
  -DTEGULA_VERSION='"0"' -DTGI_CUDA_ARCHS='"0"' -D__x86_64__ -D__GNUC__=12
