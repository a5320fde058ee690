#!/bin/sh
# Installs the Debian or Ubuntu packages that a task needs and the machine lacks.
#   scripts/setup.sh build|demo|test|check|ci|fuzz|coverage
# Root and passwordless sudo install them; anyone else gets the one line to run, and exit code 1.
# Looks for the tools and headers themselves, so that other systems pass too when they have them.
set -eu

# package  what shows that it is there: a command, a /file, a python:module or a python-header:FILE
demo_needs='
gcc              gcc
libc6-dev        /usr/include/stdio.h
cmake            cmake
ninja-build      ninja
pkgconf          pkg-config
libjansson-dev   /usr/include/jansson.h
libpcre2-dev     /usr/include/pcre2.h
libutf8proc-dev  /usr/include/utf8proc.h'
build_needs="$demo_needs
libcmocka-dev    /usr/include/cmocka.h"
test_needs="$build_needs
g++              g++
python3          python3
python3-venv     python:ensurepip
python3-dev      python-header:Python.h
ca-certificates  /etc/ssl/certs/ca-certificates.crt"
check_needs="$build_needs
g++              g++
python3          python3
clang-14         clang-14
clang-format-14  clang-format-14
clang-tidy-14    clang-tidy-14
cppcheck         cppcheck"
fuzz_needs="$build_needs
clang-14            clang-14
libclang-rt-14-dev  /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux"
coverage_needs="$build_needs
gcovr            gcovr"

case "${1:-}" in
build) needs=$build_needs ;;
demo) needs=$demo_needs ;;
test) needs=$test_needs ;;
check) needs=$check_needs ;;
ci) needs="$test_needs
$check_needs
$fuzz_needs" ;;
fuzz) needs=$fuzz_needs ;;
coverage) needs=$coverage_needs ;;
*)
  echo "usage: scripts/setup.sh build|demo|test|check|ci|fuzz|coverage" >&2
  exit 2
  ;;
esac

has() {
  case "$1" in
  /*) test -e "$1" ;;
  python-header:*)
    python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), sys.argv[1])))' \
      "${1#python-header:}" 2>/dev/null
    ;;
  python:*) python3 -c "import ${1#python:}" 2>/dev/null ;;
  *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

find_missing() {
  missing=$(echo "$needs" | while read -r package sign; do
    if [ -n "$package" ] && ! has "$sign"; then
      echo "$package"
    fi
  done | sort -u | sed 's/^/ /' | tr -d '\n')
}

find_missing
if [ -n "$missing" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: install what Debian calls:$missing" >&2
    exit 1
  fi
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: packages are missing; please run" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
      exit 1
    fi
    as_root="sudo -n"
  fi
  echo "setup: installing$missing"
  log=$(mktemp)
  # shellcheck disable=SC2086 # both are lists of words
  if ! { $as_root apt-get update -q &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get failed; its whole output is in $log" >&2
    exit 1
  fi
  rm -f "$log"
  find_missing
  if [ -n "$missing" ]; then
    echo "setup: still missing after the installation:$missing" >&2
    exit 1
  fi
fi

cmake_version=$(cmake --version | sed -n '1s/[^0-9]*//p')
if [ "$(printf '%s\n3.25\n' "$cmake_version" | sort -V | head -n 1)" != 3.25 ]; then
  echo "setup: cmake: expected 3.25 or newer, got $cmake_version" >&2
  exit 1
fi
