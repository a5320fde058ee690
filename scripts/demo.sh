#!/bin/sh
# The main job in small, with nothing but this tree: writes a corpus of little stories whose entropy
# is known, trains a GPT on it, and judges what the GPT learned and writes.
#   scripts/demo.sh BUILD [DIR]     BUILD: where the programs were built; DIR: what is written (demo)
set -eu

build=${1:?"usage: scripts/demo.sh BUILD [DIR]"}
dir=${2:-demo}
tegula=$build/src/cli/tegula
corpus=$build/examples/story_corpus
words=500
mark='<|endoftext|>'

say() {
  printf '\n== %s\n' "$*"
}

mkdir -p "$dir"
rm -rf "$dir/model" "$dir/model.jsonl"

say "a corpus of small stories, from the grammar in examples/story_rules.c"
"$corpus" write 1 1000000 >"$dir/train.txt"
"$corpus" write 2 60000 >"$dir/validation.txt" # another seed: other stories
entropy=$("$corpus" entropy)
echo "entropy: $entropy bit/byte"
ls -l "$dir/train.txt" "$dir/validation.txt" | awk '{print $5 " bytes", $NF}'

say "training (Ctrl-C saves; '$tegula train --out $dir/model --resume' goes on)"
"$tegula" train --preset gpt_tile_small --train-file "$dir/train.txt" --val-file "$dir/validation.txt" \
  --out "$dir/model" --steps 2400 --batch 8 --seq 128 --lr 0.008 --warmup 200 --eval-every 500 --save-every 1000

say "a generated story"
"$tegula" generate "$dir/model" "$mark" --temperature 0.8 --seed 1 --threads 1 --quiet

# So many stories that they hold 500 words, which takes about 30.
: >"$dir/generated.txt"
seed=1
while [ "$(wc -w <"$dir/generated.txt")" -lt "$words" ] && [ "$seed" -le 500 ]; do
  "$tegula" generate "$dir/model" "$mark" --temperature 0.8 --seed "$seed" --threads 1 --quiet >>"$dir/generated.txt"
  seed=$((seed + 1))
done

say "what it learned"
loss=$(sed -n 's/.*"event":"validation".*"bits_per_byte":\([0-9.e+-]*\).*/\1/p' "$dir/model.jsonl" | tail -n 1)
awk -v loss="$loss" -v entropy="$entropy" 'BEGIN {
  printf "validation loss: %.3f bit/byte; entropy: %.3f; above it: %.3f (at most 0.15)\n", loss, entropy, loss - entropy
}'
"$corpus" words "$words" <"$dir/generated.txt" | sed 's/$/ of those sampled (at least 95 %)/'
