#!/bin/sh
# Ranks that update their shards themselves: what they may do when, and who is lost in the middle of it.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
"$program" "$TIERCTL" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"

# A step that is reduced is not decided: nobody waits for its owners when tierd ends.
tierd_start
mkfifo "$scratch/told"
"$program" stay 3>"$scratch/told" &
exec 4<"$scratch/told"
read -r word <&4 || fail 'no word of the rank'
[ "$word" = reduced ] || fail "the rank says $word"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status with a reduced step"
wait $! || fail 'the rank has not heard of the end'
