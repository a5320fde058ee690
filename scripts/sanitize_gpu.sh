#!/bin/sh
# Runs the spec driver's small cases under each tool of compute-sanitizer on GPU 0, several rows of
# the op table at a time, and says for each tool how many rows it found something in.
#   scripts/sanitize_gpu.sh BUILD_DIR [LOG_DIR]
# SANITIZE_TOOLS      memcheck racecheck synccheck initcheck
# SANITIZE_ELEMENTS   most elements of a case's tensors (5000)
# SANITIZE_JOBS       rows at a time (8)
# SANITIZE_ROWS       rows of the op table (all)
# SANITIZE_FLAGS      more for test_ops: --dtype bf16, --entry sm90
set -eu
build=$1
logs=${2:-$build/sanitize_gpu}
mkdir -p "$logs"

# Called again by xargs with a tool and a row.
if [ -n "${4:-}" ]; then
  log=$logs/$3.$4.log
  status=0
  # shellcheck disable=SC2086 # words
  compute-sanitizer --tool "$3" --error-exitcode 99 "$build/tests/test_ops" --backend cuda \
    --op "$4" --max-elements "${SANITIZE_ELEMENTS:-5000}" ${SANITIZE_FLAGS:-} \
    >"$log" 2>&1 || status=$?
  if [ $status = 0 ]; then
    echo "ok" >"$logs/$3.$4.result"
  else
    echo "FAILED ($status)" >"$logs/$3.$4.result"
    echo "$3: $4: FAILED ($status)"
    grep -m 4 '^========= [A-Z]\|^FAILED' "$log" | grep -v COMPUTE-SANITIZER | sed 's/^/    /'
  fi
  exit 0
fi

rows=${SANITIZE_ROWS:-$("$build/tests/test_ops" --list \
  --max-elements "${SANITIZE_ELEMENTS:-5000}" | cut -d ' ' -f 1 | LC_ALL=C sort -u)}
tools=${SANITIZE_TOOLS:-memcheck racecheck synccheck initcheck}
failed=0
for tool in $tools; do
  rm -f "$logs/$tool".*.result
  start=$(date +%s)
  # shellcheck disable=SC2086 # one word for each row
  printf '%s\n' $rows | xargs -P "${SANITIZE_JOBS:-8}" -I {} "$0" "$build" "$logs" "$tool" {}
  wanted=$(printf '%s\n' "$rows" | wc -w)
  good=$(cat "$logs/$tool".*.result 2>/dev/null | grep -c '^ok' || true)
  echo "$tool: $good of $wanted rows without errors, $(($(date +%s) - start)) s"
  [ "$good" = "$wanted" ] || failed=1
done
exit $failed
