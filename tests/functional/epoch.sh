#!/bin/sh
# Who waits for a rank that dies hears of it, whatever it waits in, and goes on with the next epoch.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
"$program" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
