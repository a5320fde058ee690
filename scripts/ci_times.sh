#!/bin/sh
# Where the time of .ci/run went, from its logs, as a table: each step, each check, each C test of
# each preset and the slowest Python tests.
#   scripts/ci_times.sh LOG_DIR
# Seconds are those on the clock; "processors" those of all processors, where they are known.
set -eu
logs=$1
printf 'what\tname\tseconds\tprocessors\n'
for step in setup check sanitizers environment tests; do
  [ -s "$logs/$step.time" ] || continue
  awk -v name=$step '{printf "step\t%s\t%.1f\t%.1f\n", name, $1, $2 + $3}' "$logs/$step.time"
done
awk '$4 == "s," && $NF == "processors" {printf "check\t%s\t%s\t%s\n", $2, $3, $5}' "$logs/check.log"
for log in sanitizers tests; do
  [ -s "$logs/$log.log" ] || continue
  awk -v preset=$log '/ Test +#[0-9]+: / && $NF == "sec" {
    sub(/.* Test +#[0-9]+: /, "")
    printf "ctest:%s\t%s\t%s\t\n", preset, $1, $(NF - 1)
  }' "$logs/$log.log" | sort -t "$(printf '\t')" -k3,3nr
done
awk '$1 ~ /^[0-9.]+s$/ && $2 ~ /^(call|setup|teardown)$/ {
  sub(/s$/, "", $1)
  seconds = $1
  kind = $2
  $1 = $2 = ""
  sub(/^ +/, "")
  printf "python:%s\t%s\t%s\t\n", kind, $0, seconds
}' "$logs/tests.log" | sort -t "$(printf '\t')" -k3,3nr | head -n 40
