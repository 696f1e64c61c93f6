#!/bin/sh
# Each verb of tierctl says the same of what is the same. tierctl_everywhere.sh PROGRAM: user_job.c
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

look() { # STATE
	STATE=$1 python3 "$(dirname "$0")/tierctl_everywhere.py" || fail "with a daemon that is $1: see above"
}

PATH=$(dirname "$TIERD"):$PATH
look absent
tierd_start
"$1" job=gpt snapshots=1 </dev/null >/dev/null || fail 'no job is trained'
look here
"$1" job=gpt snapshots=1 </dev/null >/dev/null || fail 'no job is trained'
kill -STOP "$tierd_pid"
look stuck
kill -CONT "$tierd_pid"
tierd_stop
