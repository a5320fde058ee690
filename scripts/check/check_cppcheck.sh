#!/bin/sh
# cppcheck finds nothing. Each file is read as one entry of the chain compiles it.
#   scripts/check/check_cppcheck.sh [all|changed]      changed: see scripts/check/changed_units.py
cd "$(dirname "$0")/../.."
mkdir -p build/cppcheck
list=build/cppcheck/files
scripts/sources.sh | grep '^\(src\|tests\|bench\|fuzz\|examples\)/.*\.c$' >$list
if [ "${1:-all}" = changed ]; then
  scripts/check/changed_units.py scripts/check/check_cppcheck.sh >$list.changed || exit 1
  grep -Fxf $list.changed $list >$list.both
  mv $list.both $list
  [ -s $list ] || exit 0
fi
cppcheck --quiet --error-exitcode=1 -j "$(nproc)" --cppcheck-build-dir=build/cppcheck \
  --file-list=$list --std=c11 --language=c --inline-suppr \
  --enable=warning,performance,portability \
  --suppress=missingIncludeSystem --suppress=unmatchedSuppression --suppress=uninitdata --suppress=uninitvar --suppress=internalAstError --suppress=ctunullpointer \
  -Iinclude -Isrc -Itests -DTGI_ENTRY=generic -DTGI_HAVE_X86 \
  -DTEGULA_VERSION='"0"' -DTGI_CUDA_ARCHS='"0"' -D__x86_64__ -D__GNUC__=12
