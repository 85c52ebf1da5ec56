#!/bin/sh
# chassis.sh DIRECTORY get|set|check [PARAMETER [VALUE]]...: what ipmi_sim asks and tells its machine. State and a log of
# every order lie in DIRECTORY.
dir=$1
op=$2
shift 2
echo "$op $*" >>"$dir/orders"
case $op in
  get)
    for name in "$@"; do
      case $name in
        power) value=$(cat "$dir/power" 2>/dev/null || echo 0) ;;
        boot) value=$(cat "$dir/boot" 2>/dev/null || echo default) ;;
        *) echo "unknown: $name" && exit 1 ;;
      esac
      echo "$name:$value"
    done
    ;;
  set)
    while [ $# -gt 1 ]; do
      case $1 in
        power | boot) echo "$2" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1" ;;
        shutdown) echo 0 >"$dir/power" ;;
      esac
      shift 2
    done
    ;;
esac
exit 0
