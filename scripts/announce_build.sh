#!/bin/sh
# Says what a build has never compiled and about how long that takes; nothing if there is little.
#   scripts/announce_build.sh BUILD_DIR
# Seconds of one slow processor, as measured (fast ones need half of it): 9 for a CUDA file and 5 for each GPU it serves, 1.2 for a C file.
set -eu
build=$1
# missing PATTERN: how many of the objects that match are not there.
missing() {
  sed -n "s/^build \\($1\\)[ :].*/\\1/p" "$build/build.ninja" | while read -r object; do
    [ -e "$build/$object" ] || echo "$object"
  done | wc -l
}
kernels=$(missing 'src\/cuda_[a-z0-9]*\/[a-z0-9_]*\.o')
files=$(missing '[^ :]*\.c\.o')
[ $((kernels + files)) -gt 20 ] || exit 0
gpus=$(sed -n 's/.*TGI_CUDA_ARCHS=[\\"]*\([0-9aPTX. ]*[0-9aPTX]\).*/\1/p' "$build/build.ninja" | head -n 1)
processors=$(nproc 2>/dev/null || echo 2)
what="$files C files"
seconds=$((files * 12 / 10))
if [ "$kernels" -gt 0 ]; then
  what="$kernels files of CUDA kernels for $gpus and $what"
  seconds=$((seconds + kernels * (9 + 5 * $(echo "$gpus" | wc -w))))
fi
minutes=$((seconds / processors / 60 + 1))
echo "test: compiling $what first: $(((minutes + 1) / 2)) to $minutes minutes on $processors processors"
if [ "$kernels" -gt 0 ]; then
  echo "test: TEGULA_CUDA_ARCHS=none leaves the kernels out, naming one GPU (TEGULA_CUDA_ARCHS=9.0a) most of them"
fi
