#!/usr/bin/env bash
# start.sh DIRECTORY: emulated BMCs on loopback, all with the login admin/password: a Redfish service of 16 systems, the
# same with the members that DMTF's schemas require, one behind TLS, four ipmi_sim (cipher suite 3), four of pyghmi (17).
# Prints NAME=VALUE lines for the environment of the tests. What cannot be had is left out, and said on standard error.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && dir=$(cd "$1" && pwd)
"$here/stop.sh" "$dir"
rm -rf "$dir/run" && mkdir -p "$dir/run"

# A port that is free, and those behind it, from $1 on in steps.
free_ports() { # FROM COUNT [udp]
  python3 - "$@" <<'P'
import socket, sys
base, count = int(sys.argv[1]), int(sys.argv[2])
kinds = [socket.SOCK_STREAM] if len(sys.argv) < 4 else [socket.SOCK_STREAM, socket.SOCK_DGRAM]
while True:
    held = []
    try:
        for port in range(base, base + count):
            for kind in kinds:
                s = socket.socket(socket.AF_INET, kind)
                held.append(s)
                s.bind(("127.0.0.1", port))
        print(base)
        break
    except OSError:
        base += count
    finally:
        for s in held:
            s.close()
P
}
started() { echo "$2" >"$dir/run/$1.pid"; }
answers() { # COMMAND...: tried for 30 s
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
}

python() {
  [ -x "$dir/venv/bin/python" ] || python3 -m venv "$dir/venv" || return 1
  "$dir/venv/bin/python" -c 'import sushy_tools, bcrypt, pyghmi' 2>/dev/null ||
    "$dir/venv/bin/pip" install -q sushy-tools==2.2.0 bcrypt pyghmi==1.6.19
}

redfish() { # NAME VARIABLE FROM [--strict | --tls]
  local port scheme=http mode=${4:-}
  [ "$mode" = --tls ] && scheme=https
  port=$(free_ports "$3" 1)
  "$dir/venv/bin/python" "$here/redfish_config.py" 16 "$dir/run/$1" "$port" "$mode" >/dev/null || return 1
  [ "$mode" = --strict ] || mode=
  "$dir/venv/bin/python" "$here/redfish.py" $mode --config "$dir/run/$1/sushy.conf" >"$dir/run/$1.log" 2>&1 </dev/null &
  started "$1" $!
  answers curl -skf -m 2 "$scheme://127.0.0.1:$port/redfish/v1/" && echo "$2=127.0.0.1:$port"
}

ipmi_sim() {
  command -v ipmi_sim >/dev/null || return 1
  local base i
  base=$(free_ports 19100 8 udp)
  for i in 0 1 2 3; do
    "$here/ipmi_sim.sh" "$dir/run/bmc$i" $((base + i)) $((base + 4 + i)) >/dev/null || return 1
    started "bmc$i" "$(cat "$dir/run/bmc$i/pid")"
  done
  IPMI_PASSWORD=password answers ipmitool -I lanplus -H 127.0.0.1 -p "$base" -U admin -C 3 -N 2 -R 1 -E mc info &&
    echo "LATTICE_TEST_IPMI_SIM=127.0.0.1:$base"
}

pyghmi() {
  local base
  base=$(free_ports 19500 4 udp)
  "$dir/venv/bin/python" "$here/pyghmi_bmc.py" 4 "$base" --only 17 >"$dir/run/pyghmi.log" 2>&1 </dev/null &
  started pyghmi $!
  IPMI_PASSWORD=password answers ipmitool -I lanplus -H 127.0.0.1 -p "$base" -U admin -C 17 -N 2 -R 1 -E mc info &&
    echo "LATTICE_TEST_PYGHMI=127.0.0.1:$base"
}

if python >"$dir/run/pip.log" 2>&1; then
  redfish redfish LATTICE_TEST_REDFISH 18000 || { echo "no Redfish emulator:"; tail -3 "$dir/run/redfish.log"; } >&2
  redfish strict LATTICE_TEST_REDFISH_STRICT 18100 --strict || { echo "no strict Redfish emulator:"; tail -3 "$dir/run/strict.log"; } >&2
  if redfish tls LATTICE_TEST_REDFISH_TLS 18200 --tls; then
    echo "LATTICE_TEST_REDFISH_CERT=$dir/run/tls/cert.pem"
  else
    { echo "no Redfish emulator with TLS:"; tail -3 "$dir/run/tls.log"; } >&2
  fi
  command -v ipmitool >/dev/null && { pyghmi || { echo "no pyghmi:"; tail -3 "$dir/run/pyghmi.log"; } >&2; }
else
  { echo "no Python packages:"; tail -3 "$dir/run/pip.log"; } >&2
fi
command -v ipmitool >/dev/null && { ipmi_sim || echo "no ipmi_sim" >&2; }
exit 0
