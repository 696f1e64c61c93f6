#!/bin/sh
# Clients that lie in the protocol and scribble over what they share with tierd harm nobody but themselves.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'
trainer=$1

tierd_start --connections-per-user 200
python3 "$(dirname "$0")/bad_input_raw.py" "$trainer" "$scratch" || fail 'see above'
expect_status 0 "$TIERCTL" status
expect_text "pid $tierd_pid"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
