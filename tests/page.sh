#!/usr/bin/env bash
# The page in a real browser: Chromium, driven by chromedriver. Screenshots go to $LATTICE_SCREENSHOTS where that is set.
set -eu
cd "$(dirname "$0")/.."
driver=${LATTICE_TEST_CHROMEDRIVER:-$(command -v chromedriver || true)}
if [ -z "$driver" ] || [ ! -x "$driver" ]; then
  echo "skipped: page (chromedriver is missing)"
  exit 0
fi
export LATTICE_TEST_CHROMEDRIVER=$driver
exec cargo test --locked -p lattice-server --test page -- --test-threads="${TEST_THREADS:-2}" browser::
