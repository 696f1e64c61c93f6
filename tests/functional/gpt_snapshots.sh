#!/bin/sh
# What the example trainer asks of a job's store: room for snapshots, from which it trains to the same bits again; the values of another job;
# and how often steps are committed.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--ranks 2'

tierd_start

# ---- Back to a snapshot, and on from there

expect_status 0 run_gpt --job base --snapshots 1 --steps 10
expect_status 0 "$TIERCTL" snapshot base ten
expect_status 0 run_gpt --job base --snapshots 1 --steps 20 --dump "$scratch/straight"
expect_status 0 "$TIERCTL" rollback base ten --yes
expect_status 0 run_gpt --job base --snapshots 1 --steps 20 --dump "$scratch/again"
cmp "$scratch/straight" "$scratch/again" || fail 'other bits after a rollback'

# ---- Under ranks that would go on: they hear why they cannot, once

train_endlessly() { # JOB
	run_gpt --job "$1" --snapshots 1 --steps 1000000 >"$scratch/out" 2>&1 &
	trainer=$!
	await_training "$1" $trainer
}

expect_sent_away() { # REASON
	status=0
	wait $trainer || status=$?
	output=$(cat "$scratch/out")
	[ $status -eq 1 ] || fail "gpt ends with $status: $output"
	expect_text "$1, and this rank has no part in it any more; it may open the job again"
}

train_endlessly busy
expect_status 0 "$TIERCTL" snapshot busy first
expect_status 0 "$TIERCTL" rollback busy first --yes --force
step=$("$TIERCTL" --json jobs busy | sed -n 's/.*"durable_step":[[:space:]]*\([0-9]*\).*/\1/p')
expect_sent_away "job busy was rolled back to step $step by user $(id -u)"
train_endlessly busy
expect_status 0 "$TIERCTL" drop busy --yes --force
expect_sent_away "job busy was dropped by user $(id -u)"

# ---- Under ranks that reconnect: they open it again, and go on from there

export TIERD_RECONNECT_MS=60000
expect_status 0 run_gpt --job patient --snapshots 1 --steps 10
expect_status 0 "$TIERCTL" snapshot patient ten
train_endlessly patient
expect_status 0 "$TIERCTL" rollback patient ten --yes --force
until grep -q 'going on after step 10' "$scratch/out"; do
	kill -0 $trainer || fail "gpt does not come back: $(cat "$scratch/out")"
done
expect_status 0 "$TIERCTL" drop patient --yes --force
expect_sent_away "job patient was dropped by user $(id -u)"
unset TIERD_RECONNECT_MS

# ---- From another job's values

expect_status 0 run_gpt --job tuned --source base --with-optimizer --steps 2 --dump "$scratch/tuned"
expect_status 0 run_gpt --job tuned_too --source base --with-optimizer --steps 2 --dump "$scratch/tuned_too"
expect_status 0 run_gpt --job fresh_moments --source base --steps 2 --dump "$scratch/fresh_moments"
expect_status 0 run_gpt --job anew --steps 2 --dump "$scratch/anew"
cmp "$scratch/tuned" "$scratch/tuned_too" || fail 'other bits from the same source'
! cmp -s "$scratch/tuned" "$scratch/fresh_moments" || fail 'the optimizer began anew'
! cmp -s "$scratch/anew" "$scratch/fresh_moments" || fail 'the source counted for nothing'
# What the source lacks is not made up, by no rank.
for ranks in 1 2; do
	expect_status 1 run_gpt --job deeper --source base --layers 2 --ranks $ranks --steps 2
	expect_text '12 tensors have no source in job base: "layer.1.norm1.weight"'
done
expect_status 2 run_gpt --with-optimizer
expect_text 'give --source JOB'

# ---- How often steps are committed

for durability in step none 7; do
	expect_status 0 run_gpt --job "lasts_$durability" --durability $durability --steps 1
	expect_status 0 "$TIERCTL" --json jobs "lasts_$durability"
	echo "$output" | grep -Eq "\"durability\":[[:space:]]*\"?$durability\"?," || fail "durability: $output"
done
for durability in 0 86401 7s often -1; do
	expect_status 2 run_gpt --durability=$durability
	expect_text 'give step, none, or seconds from 1 to 86400'
done
# ---- Of a job that is not durable there are none

expect_status 1 run_gpt --job fleeting --durability none --snapshots 2 --steps 2
expect_text 'room for 2 snapshots of a job that is not durable'
expect_text 'leave snapshots at 0, or take another durability'
expect_status 0 run_gpt --job fleeting --durability none --steps 2
expect_status 1 "$TIERCTL" snapshot fleeting first
expect_text 'it was opened so; open another job that is, with this one as its source'

# ---- With fewer ranks: what one had kept that is gone says so, and is its own again

has_no_rank() {
	"$TIERCTL" --json blobs "$1" | tr -d '[:space:]' | grep -o '"has_no_rank":true' | wc -l
}

run_narrow() { # RANKS STEPS
	expect_status 0 run_gpt --job narrow --ranks "$1" --steps "$2"
}

run_narrow 2 2
[ "$(has_no_rank narrow)" -eq 0 ] || fail "ranks are missing: $("$TIERCTL" blobs narrow)"
run_narrow 1 4
[ "$(has_no_rank narrow)" -eq 1 ] || fail "no rank has gone: $("$TIERCTL" blobs narrow)"
expect_status 0 "$TIERCTL" blobs narrow
expect_text 'no rank 1'
run_narrow 2 6
[ "$(has_no_rank narrow)" -eq 0 ] || fail "ranks are missing: $("$TIERCTL" blobs narrow)"
tierd_stop
