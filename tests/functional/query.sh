#!/bin/sh
# What a rank asks about itself.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
timeout "$patience" "$program" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
