#!/bin/sh
# Tensors without a gradient in a step stay as they are, and how often each was updated outlives the daemon, and is rolled back, with
# the step that it belongs to.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
steps=7

tierd_start
timeout "$patience" "$program" || fail 'see above'

expect_status 0 "$program" train calm 0 $steps
expect_status 0 "$program" bits calm 0 "$scratch/calm"
for step in $(seq $steps); do
	expect_status 0 "$program" train killed 1 "$step"
	tierd_kill
	tierd_start
done
expect_status 0 "$program" bits killed 1 "$scratch/killed"
cmp "$scratch/calm" "$scratch/killed" || fail 'other bits behind kills'

expect_status 0 "$program" train back 1 2
expect_status 0 "$TIERCTL" snapshot back early
expect_status 0 "$program" train back 1 5
expect_status 0 "$TIERCTL" rollback back early --yes
expect_status 0 "$program" train back 1 $steps
expect_status 0 "$program" bits back 1 "$scratch/back"
cmp "$scratch/calm" "$scratch/back" || fail 'other bits behind a roll back'
tierd_stop
