#!/bin/sh
# The statistics of tierd: for Prometheus, of a daemon that turns, of one that is stopped, and of none.
# metrics.sh PROGRAM: user_job.c
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

mkdir "$nvme/a\"b\\c"
tierd_start --nvme "$nvme/a\"b\\c:1G"
TIERD_PID=$tierd_pid NVME=$nvme SCRATCH=$scratch python3 "$(dirname "$0")/metrics.py" "$1" || fail 'see above'
tierd_stop
[ ! -e "$TIERD_SOCKET.statistics" ] || fail 'the page of statistics is left'
expect_status 3 "$TIERCTL" metrics
expect_status 3 "$TIERCTL" top --once
expect_status 2 "$TIERCTL" top --interval 0
expect_text "--interval cannot be '0'"
expect_status 2 "$TIERCTL" top --interval nan
expect_status 2 "$TIERCTL" top surplus
expect_status 3 "$TIERCTL" top --json --once
expect_text 'no tierd listens'

# Who looks when it dies is told so, and looks on.
tierd_start
"$TIERCTL" top --interval 0.1 >"$scratch/top" 2>"$scratch/errors" &
top=$!
await test -s "$scratch/top" || fail 'top shows nothing'
tierd_kill
await grep -q 'closed the connection' "$scratch/errors" || fail "top says: $(cat "$scratch/errors")"
kill $top

# What a dead daemon leaves is not taken for a living one's.
[ -e "$TIERD_SOCKET.statistics" ] || fail 'there is no page of statistics'
expect_status 3 "$TIERCTL" metrics
expect_text 'no tierd listens'
