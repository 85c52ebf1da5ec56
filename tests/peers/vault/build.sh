#!/usr/bin/env bash
# build.sh DIRECTORY: HashiCorp Vault 1.21.1, unmodified, from the Go modules pinned beside this file, as DIRECTORY/vault.
# BUSL-1.1: a peer of tests, never shipped. It takes five minutes of two cores, once, and Go 1.25.3 or later.
set -euo pipefail
directory=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$directory/src"
directory=$(cd "$directory" && pwd)
# One at a time; what was built is used again as long as the pins are the same.
exec 9>"$directory/lock"
flock 9
if [ -x "$directory/vault" ] && cmp -s "$here/go.sum" "$directory/built.sum"; then exit 0; fi
install -m 644 "$here/go.mod" "$here/go.sum" "$directory/src/"
cd "$directory/src"
export GOTOOLCHAIN=local GOFLAGS=-buildvcs=false CGO_ENABLED=0 GOWORK=off
nice -n 10 go build -mod=readonly -tags minimal -trimpath -ldflags='-s -w' -o "$directory/vault.new" \
  github.com/hashicorp/vault
mv "$directory/vault.new" "$directory/vault"
install -m 644 "$here/go.sum" "$directory/built.sum"
