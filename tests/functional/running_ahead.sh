#!/bin/sh
# Ranks that run ahead leave a slot to the one that they wait for, also where the daemon has the least memory for their job.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

status=75
budget=20
while [ "$status" -eq 75 ]; do
	budget=$((budget + 1))
	[ "$budget" -le 80 ] || fail 'the job needs more than 80 MiB'
	tierd_start --host-budget "$budget"M
	status=0
	timeout "$patience" "$program" || status=$?
	tierd_stop
done
[ "$status" -eq 0 ] || fail "with $budget MiB: see above"
