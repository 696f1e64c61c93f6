# shellcheck shell=sh
# Sourced by tests of a daemon that is killed under trainers, after lib.sh; $gpt is the example trainer.
#
#   run_gpt FLAG…         trains with two ranks; train_through_kills has it take $steps steps
#   await_step JOB STEP PID   waits for a durable step beyond STEP; fails if PID, its trainer, has ended
#   train_through_kills JOB KILLS CALM [FLAG…]   trains it; its daemon dies so often
#
# CALM is a job that has been trained alike, undisturbed, to $scratch/CALM. Daemons are started with $flags, and die after some
# more than $writes writes.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"
steps=400
flags='--durability auto'
writes=300

run_gpt() {
	timeout "$patience" "$gpt" --layers 2 --width 64 --heads 2 --context 32 --batch 2 --threads 1 --log-every 0 \
		--loss-scale dynamic:1024 --data "$scratch/data" --ranks 2 "$@"
}

# Waits for a durable step beyond the one given.
await_step() { # JOB STEP PID
	await is_beyond_or_ended "$@" || fail "no step of $1 beyond $2 is durable: $("$TIERCTL" jobs)"
	kill -0 "$3" 2>/dev/null
}

is_beyond_or_ended() { # JOB STEP PID
	[ "$(value_of "$1" durable_step)" -gt "$2" ] || ! kill -0 "$3" 2>/dev/null
}

has_ended() { # PID
	! kill -0 "$1" 2>/dev/null
}

one_has_ended() {
	has_ended "$tierd_pid" || has_ended "$trainer"
}

# Of each daemon: it dies at a write, so that it has died before the training is over, however slow or quick this machine is.
# How many writes that are is another number each time, and several steps.
await_death() { # WRITES
	# shellcheck disable=SC2086 # they are several words
	tierd_launch $flags --log-level debug --fault "kill:write:$1"
	await one_has_ended || fail 'neither the daemon nor the trainer ends'
	has_ended "$tierd_pid" || fail "the trainer ends before the daemon has died: $(cat "$scratch/out")"
	tierd_status=0
	wait "$tierd_pid" || tierd_status=$?
	[ $tierd_status -eq 137 ] || fail "the daemon ends with $tierd_status"
}

# What a daemon has said to be durable the next one has.
expect_no_way_back() { # JOB
	sed -n "s/.*job $1 of .*: step \([0-9]*\) is durable.*/\1/p; s/.*job $1 of .*: it is back at step \([0-9]*\),.*/\1 back/p" \
		"$tierd_log" >"$scratch/steps"
	awk '$1 < last { exit 1 } { last = $1 }' "$scratch/steps" || fail "durable steps of $1: $(cat "$scratch/steps")"
	[ "$(grep -c back "$scratch/steps")" -ge "$2" ] || fail "$1 did not come back $2 times: $(cat "$scratch/steps")"
}

# Trains JOB, whose daemon dies again and again; its bits are those of CALM.
train_through_kills() { # JOB KILLS CALM [FLAG…]
	job=$1 kills=$2 calm=$3
	shift 3
	tierd_stop
	TIERD_RECONNECT_MS=60000 run_gpt --steps $steps --job "$job" --dump "$scratch/dump" "$@" >"$scratch/out" 2>&1 &
	trainer=$!
	for kill in $(seq "$kills"); do
		await_death $((writes + 7 * kill))
	done
	# shellcheck disable=SC2086 # they are several words
	tierd_start $flags --log-level debug
	wait $trainer || fail "gpt: $(cat "$scratch/out")"
	cmp "$scratch/$calm" "$scratch/dump" || fail "$job: other bits after kills"
	expect_no_way_back "$job" "$kills"
	[ "$(value_of "$calm" durable_step)" -eq $steps ] || fail "the other job: $("$TIERCTL" jobs)"
}
