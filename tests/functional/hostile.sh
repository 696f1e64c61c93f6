#!/bin/sh
# A table of hostile cases: each ends as it says there, costs at most its own client its connection, and leaves nothing behind.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

tierd_start --first-frame-seconds 1 --frame-seconds 1 --output-queue 1M
# Another user needs a way to the socket.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
TIERD_PID=$tierd_pid python3 "$(dirname "$0")/hostile.py" "$@" || fail 'see above'
expect_status 0 "$TIERCTL" status
expect_text "pid $tierd_pid"
tierd_stop
