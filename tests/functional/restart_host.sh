#!/bin/sh
# Jobs that have state in host memory outlive the daemon, too: it is killed under trainers at each stage; they go on from the
# last durable step, to the same bits.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
gpt=$1
# shellcheck source=tests/functional/restart_lib.sh
. "$(dirname "$0")/restart_lib.sh"
steps=120

# ---- Parameters in host memory: each step writes a copy

tierd_start
expect_status 0 run_gpt --steps $steps --job calm --dump "$scratch/calm"
for stage in 0 1 2 3; do
	train_through_kills "host-$stage" 2 calm --stage $stage --parameters-on host
done

# ---- Optimizer state in host memory: steps wait while it is written, if they write to NVMe themselves

flags='--durability step'
tierd_stop
# shellcheck disable=SC2086 # they are several words
tierd_start $flags
train_through_kills state 2 calm --optimizer-on host

# ---- Both: it is written before each commit, in the background of steps; these are many in a second

# They do not wait for what is written: so the daemon dies after little of that.
steps=600 writes=60
for stage in 1 3; do
	expect_status 0 run_gpt --steps $steps --job "long-$stage" --dump "$scratch/long-$stage" --stage $stage \
		--parameters-on host --optimizer-on host
	train_through_kills "both-$stage" 2 "long-$stage" --stage $stage --parameters-on host --optimizer-on host
done
# Whoever waits for it, as gpt does at its end, need not wait for the minute of the default.
tierd_stop
tierd_start
expect_status 0 run_gpt --steps 5 --job soon --parameters-on host --optimizer-on host
[ "$(value_of soon durable_step)" -eq 5 ] || fail "its last step is not durable: $("$TIERCTL" jobs)"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
