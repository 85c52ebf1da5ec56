#!/usr/bin/env bash
# Stops the private PostgreSQL cluster of a directory. Its data stays.
#   stop-pg.sh DIRECTORY
set -u
directory=$1
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
as() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
if [ "$(id -u)" = 0 ] && ! runuser -u postgres -- test -d "$directory/data"; then
  directory=/var/tmp/lattice-pg-$(printf %s "$directory" | cksum | cut -d' ' -f1)
fi
cd /
as "$bin/pg_ctl" -D "$directory/data" -m fast -w stop >/dev/null 2>&1
exit 0
