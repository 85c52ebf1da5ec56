#!/usr/bin/env bash
# start.sh BUILT DIRECTORY: smd and bss that build.sh built, over a private PostgreSQL, all on loopback and empty.
# Prints NAME=VALUE lines for the environment of the tests.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2" && dir=$(cd "$2" && pwd)
"$here/stop.sh" "$dir"
database=$("$here/../start-pg.sh" "$dir/pg" 55633)
pg_port=${database##*:} pg_port=${pg_port%%/*}
free_port() { # FROM
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}
query() { psql -h 127.0.0.1 -p "$pg_port" -U postgres -qc "$1"; }
for name in hmsds bss; do
  query "drop database if exists $name" 2>/dev/null
  query "do \$\$ begin create role $name login password 'pw'; exception when duplicate_object then null; end \$\$"
  query "create database $name owner $name"
done
smd=$(free_port 27779) && bss=$(free_port 27778)
mkdir -p "$dir/run/bss"
answers() { # ADDRESS NAME
  for _ in $(seq 300); do
    curl -sf -m 1 -o /dev/null "$1" && return 0
    sleep 0.1
  done
  tail -5 "$dir/run/$2.log" >&2
  return 1
}
export SMD_DBHOST=127.0.0.1 SMD_DBPORT=$pg_port SMD_DBNAME=hmsds SMD_DBUSER=hmsds SMD_DBPASS=pw SMD_DBOPTS=sslmode=disable
"$built/bin/smd-init" -migrationsdir "$built/migrations/smd" >"$dir/run/smd-init.log" 2>&1
# Without empty certificate names smd writes a key into /etc and serves HTTPS.
"$built/bin/smd" -http-listen "127.0.0.1:$smd" -tls-cert "" -tls-key "" -openchami -enable-discovery=false \
  >"$dir/run/smd.log" 2>&1 </dev/null &
echo $! >"$dir/run/smd.pid"
answers "http://127.0.0.1:$smd/hsm/v2/service/ready" smd
export BSS_DBHOST=127.0.0.1 BSS_DBPORT=$pg_port BSS_DBNAME=bss BSS_DBUSER=bss BSS_DBPASS=pw BSS_DBOPTS=sslmode=disable
export BSS_INSECURE=true BSS_USESQL=true
"$built/bin/bss-init" -postgres-migrations "$built/migrations/bss" >"$dir/run/bss-init.log" 2>&1
cd "$dir/run/bss" && echo 1.32.2 >.version # read from the working directory
BSS_HTTP_LISTEN=127.0.0.1:$bss HSM_URL=http://127.0.0.1:$smd NFD_URL=http://127.0.0.1:9 \
  BSS_ADVERTISE_ADDRESS=http://127.0.0.1:$bss BSS_HSM_RETRIEVAL_DELAY=1 BSS_RETRY_DELAY=5 \
  "$built/bin/boot-script-service" >"$dir/run/bss.log" 2>&1 </dev/null &
echo $! >"$dir/run/bss.pid"
answers "http://127.0.0.1:$bss/boot/v1/service/status" bss
echo "LATTICE_TEST_SMD=http://127.0.0.1:$smd"
echo "LATTICE_TEST_BSS=http://127.0.0.1:$bss"
