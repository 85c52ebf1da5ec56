#!/usr/bin/env bash
# Starts a private PostgreSQL cluster and prints its address; an already running one is used again.
#   start-pg.sh DIRECTORY [PORT]
# It listens on loopback only and trusts every local connection: for tests alone. PORT is where it looks for a free one.
set -eu
directory=$1 port=${2:-55433}
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
# PostgreSQL refuses to run as root; as root it runs as the package's own user.
as() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
mkdir -p "$directory"
# The package's user must be able to walk to the directory: a private home is not walkable, so the data moves out.
if [ "$(id -u)" = 0 ] && ! runuser -u postgres -- test -x "$directory"; then
  directory=/var/tmp/lattice-pg-$(printf %s "$directory" | cksum | cut -d' ' -f1)
  mkdir -p "$directory"
fi
[ "$(id -u)" = 0 ] && chown postgres "$directory"
cd "$directory"
if [ ! -f "$directory/data/PG_VERSION" ]; then
  as "$bin/initdb" -D "$directory/data" -A trust -U postgres -E UTF8 >"$directory/initdb.log" 2>&1
fi
if ! as "$bin/pg_ctl" -D "$directory/data" status >/dev/null 2>&1; then
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  # A socket's path has room for 107 bytes only, so the socket lies in /tmp, named after the port.
  as "$bin/pg_ctl" -D "$directory/data" -l "$directory/log" -w \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=/tmp -c max_connections=400" \
    start >/dev/null 2>"$directory/start.log" || { cat "$directory/start.log" "$directory/log" >&2; exit 1; }
fi
port=$(sed -n 4p "$directory/data/postmaster.pid")
echo "postgres://postgres@127.0.0.1:$port/postgres"
