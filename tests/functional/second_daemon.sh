#!/bin/sh
# One state directory and one socket have one daemon; what a killed one leaves is no obstacle.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

tierd_start --log-level debug
expect_status 1 "$TIERD" --socket "$scratch/other.sock" --state-dir "$scratch/state" --host-budget 64M
expect_text "in use by another tierd, pid $tierd_pid"
[ ! -e "$scratch/other.sock" ] || fail 'the refused daemon has left a socket'

expect_status 1 "$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/other" --host-budget 64M
expect_text 'another daemon listens there'
expect_status 0 "$TIERCTL" ping

tierd_kill
[ -S "$TIERD_SOCKET" ] || fail 'a killed daemon has removed its socket'
expect_status 3 "$TIERCTL" ping
expect_text 'no tierd listens'
tierd_start --log-level debug
tierd_stop

mkdir -p "$scratch/run"
echo precious >"$TIERD_SOCKET"
expect_status 1 "$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" --host-budget 64M
expect_text 'not a socket'
[ "$(cat "$TIERD_SOCKET")" = precious ] || fail 'a file that is not a socket was replaced'
