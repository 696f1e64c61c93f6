#!/bin/sh
# Frames that are truncated, oversized, garbage, of unknown type or version, or slow end a connection, never the daemon.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'

tierd_start --first-frame-seconds 1 --frame-seconds 1
before=$(open_descriptors)
python3 "$(dirname "$0")/bad_frames.py" || fail 'see above'
await_descriptors "$before"
expect_status 0 "$TIERCTL" status
expect_text "pid $tierd_pid"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
