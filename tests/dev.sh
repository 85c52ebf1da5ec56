#!/usr/bin/env bash
# The command of the README, as a script would run it: 20 machines to active within 60 s, from an empty directory.
# It exits 0 only if it got there; what it says about it is held against that here.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --quiet --release
told=$(cargo run --locked --quiet --release -- dev --nodes 20 --seed 1 --until all-active --timeout 60s -o json)
printf '%s\n' "$told"
number() { printf '%s' "$told" | tr -d ' \n' | sed -nE "s/.*\"$1\":([0-9.]+).*/\1/p"; }
failed=0
expect() { # WHAT CONDITION, in awk's words over the numbers
  if awk -v nodes="$(number nodes)" -v active="$(number active)" -v first="$(number seconds_to_first)" \
    "BEGIN { exit !($2) }"; then
    echo "test $1 ... ok"
  else
    echo "test $1 ... FAILED"
    failed=$((failed + 1))
  fi
}
expect "every node is active" 'nodes == 20 && active == 20'
expect "the first node is active within ten seconds" 'first != "" && first <= 10'
echo "test result: $([ "$failed" = 0 ] && echo ok || echo FAILED). $((2 - failed)) passed; $failed failed"
exit "$failed"
