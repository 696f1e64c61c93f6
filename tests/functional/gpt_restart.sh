#!/bin/sh
# The daemon is killed under the example trainer and comes back without its state, whose durability was none: the training begins again and ends
# with the same bits, or says what was lost and what to do.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"
steps=800

gpt_flags='--parameters-on host --optimizer-on host'

# Kills the daemon when the job of run_gpt, in the background, has taken a step, and starts another one.
restart_under() { # JOB PID
	await_training "$1" "$2"
	tierd_kill
	tierd_start --durability none
}

read_output() { # STATUS PID
	status=0
	wait "$2" || status=$?
	output=$(cat "$scratch/out")
	[ $status -eq "$1" ] || fail "gpt ends with $status instead of $1: $output"
}

expect_status 0 "$gpt" --help
expect_text TIERD_RECONNECT_MS

# ---- Once with one rank, once with several

tierd_start --durability none
for ranks in 1 3; do
	expect_status 0 run_gpt --steps $steps --job calm --mode replace --ranks $ranks --dump "$scratch/calm"
	TIERD_RECONNECT_MS=60000 run_gpt --steps $steps --job "lost-$ranks" --ranks $ranks --dump "$scratch/lost" \
		--json "$scratch/json" >"$scratch/out" 2>&1 &
	trainer=$!
	restart_under "lost-$ranks" $trainer
	read_output 0 $trainer
	expect_text "the daemon has lost the state of job lost-$ranks; beginning again at step 0"
	cmp "$scratch/calm" "$scratch/lost" || fail "$ranks ranks: other bits"
	grep -q '"first_step": 0,' "$scratch/json" || fail "the report does not begin at step 0"
	grep '"losses"' "$scratch/json" | grep -q null && fail 'a step that was repeated has no loss'
done

# ---- What was to be resumed is gone

expect_status 0 run_gpt --steps 1 --job kept
TIERD_RECONNECT_MS=60000 run_gpt --steps $steps --job kept --mode resume >"$scratch/out" 2>&1 &
trainer=$!
restart_under kept $trainer
read_output 1 $trainer
expect_text 'there is no job kept to resume'
expect_text 'because it was not durable; --mode either trains the job from step 0'
tierd_stop
