#!/usr/bin/env bash
# ipmi_sim.sh DIRECTORY PORT CONSOLE: one BMC with the sensors of a power supply, a memory module and a GPU, cipher suite 3;
# its console takes `sensor_set_bit` and `sel_add`. Its process id is in DIRECTORY/pid.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/state" && dir=$(cd "$1" && pwd)
cat >"$dir/lan.conf" <<C
name "bmc"
set_working_mc 0x20
  console 127.0.0.1 $3
  startlan 1
    addr 127.0.0.1 $2
    priv_limit admin
    allowed_auths_callback md5
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid $(printf 'a123456789abcdef0000%012x' "$2")
  endlan
  chassis_control "$here/chassis.sh $dir"
  user 1 false "" "test" user 10 md5
  user 2 true "admin" "password" admin 10 md5
C
# A compact sensor record: number, entity, type, name of four letters.
record() { # ID NUMBER ENTITY TYPE NAME
  printf 'main_sdr_add 0x20 %s 0x00 0x51 0x02 0x1f 0x20 0x00 %s %s 0x01 0x67 0x40 %s 0x6f' "$1" "$2" "$3" "$4"
  printf ' 0xff 0x0f 0xff 0x0f 0xff 0x0f 0xc0 0x00 0x00 0x01 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0xc4'
  printf '%s' "$5" | od -An -tx1 | tr -d '\n' | sed 's/ / 0x/g'
  printf '\nsensor_add 0x20 0 %s %s 0x6f\n' "$2" "$4"
}
{
  echo 'mc_setbmc 0x20'
  echo 'mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02'
  echo 'sel_enable 0x20 1000 0x0a'
  record 1 1 0x0a 0x08 PSU1
  record 2 2 0x20 0x0c DIM1
  record 3 3 0x0b 0x13 GPU0
  echo 'mc_enable 0x20'
} >"$dir/sim.emu"
cd "$dir"
ipmi_sim -c lan.conf -f sim.emu -s state -n >sim.log 2>&1 </dev/null &
echo $! >pid
