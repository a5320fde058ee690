#!/bin/sh
# Says what a build would compile now and about how long that takes; nothing if there is nothing.
#   scripts/announce_build.sh BUILD_DIR
# Seconds of one processor, as measured: 9 for a CUDA file and 5 for each GPU it serves, 1.2 for C.
set -eu
build=$1
steps=$(cmake --build "$build" -- -n 2>/dev/null) || exit 0
kernels=$(echo "$steps" | grep -c '\] CUDA' || true)
files=$(echo "$steps" | grep -c '\] Building C' || true)
[ $((kernels + files)) -gt 20 ] || exit 0
gpus=$(sed -n 's/.*TGI_CUDA_ARCHS=[\\"]*\([0-9aPTX. ]*[0-9aPTX]\).*/\1/p' "$build/build.ninja" | head -n 1)
processors=$(nproc 2>/dev/null || echo 2)
what="$files C files"
seconds=$((files * 12 / 10))
if [ "$kernels" -gt 0 ]; then
  what="$kernels files of CUDA kernels for $gpus and $what"
  seconds=$((seconds + kernels * (9 + 5 * $(echo "$gpus" | wc -w))))
fi
echo "test: compiling $what first: about $((seconds / processors / 60 + 1)) minutes on $processors processors"
if [ "$kernels" -gt 0 ]; then
  echo "test: TEGULA_CUDA_ARCHS=none leaves the kernels out, naming one GPU (TEGULA_CUDA_ARCHS=9.0a) most of them"
fi
