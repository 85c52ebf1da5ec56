#!/usr/bin/env bash
# lxd.sh [COMMAND...]: three real containers with the real agent inside. Starts a private LXD in the cache, builds the
# agent as a static binary, runs COMMAND (all tests that need an LXD when there is none) with both named in its
# environment, and takes the LXD down again. Needs root and the Debian packages lxd and busybox-static. An LXD that
# LATTICE_TEST_LXD names is used, and left as it is.
set -eu
cd "$(dirname "$0")/.."
skip() { echo "skipped: lxd ($1)"; exit 0; }
[ "$(uname -s)" = Linux ] || skip "containers need Linux"
[ "$(id -u)" = 0 ] || skip "it needs root"
for program in lxd lxc busybox openssl; do
  command -v "$program" >/dev/null || skip "$program is missing"
done
# A dynamic busybox finds no loader in the image.
! ldd "$(command -v busybox)" >/dev/null 2>&1 || skip "busybox is not static: install busybox-static"

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cargo rustc --locked --quiet -p lattice-agent --bin lattice-agent --release -- -C target-feature=+crt-static
export LATTICE_TEST_AGENT=$CARGO_TARGET_DIR/release/lattice-agent

if [ -z "${LATTICE_TEST_LXD:-}" ]; then
  dir=${LATTICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lattice}/lxd
  port=${LATTICE_TEST_LXD_PORT:-18443}
  mkdir -p "$dir"
  # One at a time: the folder is the LXD's identity.
  exec 9>"$dir/lock"
  flock --nonblock 9 || skip "another run uses $dir"
  trap 'tests/peers/lxd_down.sh "$dir" >/dev/null 9>&-' EXIT
  trap 'exit 130' INT TERM
  tests/peers/lxd_up.sh "$dir" "$port" 9>&-
  export LATTICE_TEST_LXD=$dir LATTICE_TEST_LXD_URL=https://127.0.0.1:$port
fi

if [ $# -gt 0 ]; then
  "$@" 9>&-
else
  cargo test --locked -p lattice-providers --test lxd_real --test conformance -- --nocapture --test-threads=4 9>&-
  cargo test --locked -p lattice-cli --test lxd -- --nocapture 9>&-
fi
