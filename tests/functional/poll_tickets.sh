#!/bin/sh
# Tickets are done when poll() says so, can be late or given up, and train to the bits of calls that block.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
scenes=$("$program")
for scene in $scenes; do
	"$program" "$scene" || fail "$scene"
done
output=$("$TIERCTL" --json jobs)
[ "$output" = '[]' ] || fail "jobs are left: $output"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
forget_jobs
