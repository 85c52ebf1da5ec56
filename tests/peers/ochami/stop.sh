#!/usr/bin/env bash
# stop.sh DIRECTORY: ends what start.sh started there, by its process ids.
for file in "$1"/run/*.pid; do
  [ -f "$file" ] || continue
  kill "$(cat "$file")" 2>/dev/null
  rm -f "$file"
done
"$(dirname "$0")/../stop-pg.sh" "$1/pg"
exit 0
