#!/bin/sh
# Tensors stay in the groups that they were moved to: that outlives the daemon, is rolled back with the step that it belongs to, and a
# fork has it.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
steps=6

tierd_start
timeout "$patience" "$program" || fail 'see above'

expect_status 0 "$program" train calm $steps
expect_status 0 "$program" bits calm "$scratch/calm"
for step in $(seq $steps); do
	expect_status 0 "$program" train killed "$step"
	tierd_kill
	tierd_start
done
expect_status 0 "$program" bits killed "$scratch/killed"
cmp "$scratch/calm" "$scratch/killed" || fail 'other bits behind kills'

expect_status 0 "$program" train back 2
expect_status 0 "$TIERCTL" snapshot back early
expect_status 0 "$program" train back 5
expect_status 0 "$TIERCTL" fork back@early forked
expect_status 0 "$TIERCTL" rollback back early --yes
for job in back forked; do
	expect_status 0 "$program" train $job $steps
	expect_status 0 "$program" bits $job "$scratch/$job"
	cmp "$scratch/calm" "$scratch/$job" || fail "other bits in job $job"
done
tierd_stop
