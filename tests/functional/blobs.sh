#!/bin/sh
# Blobs live as long as the state beside which they lie: with the daemon, or, of a durable job, through its kills, and then
# they are always those of the step at which the job stands.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
expect_status 0 "$program"
tierd_stop

# ---- Killed at writes and flushes: of each commit of a step and its blobs, some are not there any more

steps=40
for fault in write:30 write:51 write:72 write:93 write:114 write:135 flush:5 flush:8 flush:11; do
	tierd_start --fault "kill:$fault"
	"$program" $steps >/dev/null 2>&1 && fail "tierd was not killed at $fault"
	wait "$tierd_pid" || true
	tierd_start
	expect_status 0 "$program" 1
	tierd_stop
	forget_jobs
done

# ---- In good order, and shown

tierd_start
expect_status 0 "$program" $steps
tierd_stop
tierd_start
expect_status 0 "$program" $((steps + 3))
expect_text $steps
expect_status 0 "$TIERCTL" blobs kept
expect_text "43  bulk"
expect_status 0 "$TIERCTL" --json blobs kept
expect_text '"key":	"step"'

# ---- As large as one may be, and the daemon killed as soon as it is durable

tierd_stop
tierd_start --host-budget 512M
expect_status 0 "$program" largest
await_durable largest 1
tierd_kill
tierd_start --host-budget 512M
expect_status 0 "$program" largest-is-there
"$TIERCTL" drop largest --yes >/dev/null

# ---- Where they cannot be read the job stays away, and comes back when they can

read=0
until grep -q 'its blobs cannot be read' "$tierd_log"; do
	tierd_stop
	read=$((read + 1))
	[ $read -lt 100 ] || fail "no read of the blobs was found"
	tierd_start --fault "complete:read:$read"
done
tierd_stop
tierd_start
expect_status 0 "$program" $((steps + 3))
[ "$output" = $((steps + 3)) ] || fail "it stands at $output"

# ---- Kept in a snapshot, and rolled back with it

expect_status 0 "$TIERCTL" snapshot kept early
expect_status 0 "$program" $((steps + 8))
expect_status 0 "$TIERCTL" rollback kept early --yes
expect_status 0 "$program" $((steps + 3))
[ "$output" = $((steps + 3)) ] || fail "it stands at $output"
tierd_stop
