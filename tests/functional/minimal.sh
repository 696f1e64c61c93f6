#!/bin/sh
# The trainer in one file: it learns; a rank that is killed, and a daemon, change no bit of what it says.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
minimal=$1
steps=300

# JOB RANK WORLD-SIZE: in the background; what it says in $scratch/JOB.RANK, its pid in $rank
train() {
	"$minimal" "$1" $steps "$2" "$3" >>"$scratch/$1.$2" &
	rank=$!
}

await_step() { # FILE STEP
	await grep -q "^step $2:" "$scratch/$1" || fail "no step $2: $(cat "$scratch/$1")"
}

finish() { # PID...
	for pid; do
		wait "$pid" || fail "a rank ends with $?"
	done
}

# Whatever was taken twice had the same losses, and the last step was taken.
expect_same() { # FILE CALM
	grep -q "^step $steps:" "$scratch/$1" || fail "$1 has no last step"
	grep -vxFf "$scratch/$2" "$scratch/$1" && fail "$1 is not $2"
	return 0
}

expect_status 2 "$minimal"
expect_status 1 "$minimal" nobody 1
expect_text 'minimal: rank 0: '
tierd_start
train calm 0 1
finish $rank
first=$(sed -n 's/^step 1: loss //p' "$scratch/calm.0") last=$(sed -n "s/^step $steps: loss //p" "$scratch/calm.0")
awk "BEGIN { exit !($last < $first / 10) }" || fail "it does not learn: loss $first, then $last"
# Alone, and killed.
train wild 0 1
await_step wild.0 20
kill -KILL $rank
wait $rank || true
train wild 0 1
finish $rank
expect_same wild.0 calm.0
# Of two ranks one.
train pair 0 2
first=$rank
train pair 1 2
finish "$first" $rank
train torn 0 2
first=$rank
train torn 1 2
await_step torn.1 20
kill -KILL $rank
wait $rank || true
train torn 1 2
finish "$first" $rank
expect_same torn.0 pair.0
expect_same torn.1 pair.1
# The daemon.
TIERD_RECONNECT_MS=60000
export TIERD_RECONNECT_MS
train kept 0 1
await_step kept.0 20
tierd_kill
tierd_start
finish $rank
expect_same kept.0 calm.0
tierd_stop
