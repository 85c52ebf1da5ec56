#!/usr/bin/env bash
# The command of the README, as a script would run it: 20 machines to active within 60 s, from an empty directory.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
cargo run --locked --quiet --release -- dev --nodes 20 --seed 1 --until all-active --timeout 60s -o json >"$out"
cat "$out"
python3 - "$out" <<'P'
import json, sys
told = json.load(open(sys.argv[1]))
assert told["nodes"] == 20 and told["active"] == 20, told
assert told["seconds_to_first"] <= 10, told
P
rm -f "$out"
echo "test result: ok. 1 passed; 0 failed"
