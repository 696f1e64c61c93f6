#!/bin/sh
# Calls of trainers that reconnect, each of another kind, meet a daemon that ends while it applies a step.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start --connections-per-user 64
"$program" "$tierd_pid" &
trainer=$!

has_ended() { # PID
	! kill -0 "$1" 2>/dev/null
}

one_has_ended() {
	has_ended "$tierd_pid" || has_ended $trainer
}

await one_has_ended || fail 'neither the daemon nor the trainer ends'
has_ended "$tierd_pid" || fail 'the trainer ends before the daemon'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
tierd_start --connections-per-user 64
wait $trainer || fail 'the trainer, see above'
tierd_stop
