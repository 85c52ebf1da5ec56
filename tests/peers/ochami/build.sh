#!/usr/bin/env bash
# build.sh DIRECTORY: OpenCHAMI's smd 2.19.1 and bss 1.32.2 from their pinned Go modules, once, into DIRECTORY/bin; their SQL
# migrations into DIRECTORY/migrations.
set -eu
mkdir -p "$1" && dir=$(cd "$1" && pwd)
smd=github.com/OpenCHAMI/smd/v2@v2.19.1 bss=github.com/OpenCHAMI/bss@v1.32.2
[ -x "$dir/bin/smd" ] && [ -x "$dir/bin/boot-script-service" ] && [ -d "$dir/migrations/bss" ] && exit 0
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-p=2 -buildvcs=false"
# As tool dependencies of an empty module: `go install pkg@version` would ask for a list of versions.
commands() { # NAME MODULE@VERSION PACKAGE...
  local module=$2
  mkdir -p "$dir/build/$1" && cd "$dir/build/$1"
  [ -f go.mod ] || go mod init peers >/dev/null 2>&1
  go mod edit -require="$module"
  shift 2
  GOFLAGS="$GOFLAGS -mod=mod" nice -n 10 go build -tags musl -trimpath -ldflags="-s -w" -o "$dir/bin/" "$@"
}
migrations() { # NAME MODULE@VERSION
  local source
  source=$(cd /tmp && GOFLAGS=-mod=mod go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
  mkdir -p "$dir/migrations" && rm -rf "$dir/migrations/$1"
  cp -r "$source/migrations/postgres" "$dir/migrations/$1" && chmod -R u+w "$dir/migrations/$1"
}
commands smd "$smd" "${smd%@*}/cmd/smd" "${smd%@*}/cmd/smd-init"
commands bss "$bss" "${bss%@*}/cmd/boot-script-service" "${bss%@*}/cmd/bss-init"
migrations smd "$smd"
migrations bss "$bss"
