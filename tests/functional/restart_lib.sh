# shellcheck shell=sh
# Sourced by tests of a daemon that is killed under trainers, after lib.sh; $gpt is the example trainer.
#
#   run_gpt FLAG…         trains with two ranks; train_through_kills has it take $steps steps
#   step_of JOB KEY       what tierctl says under KEY, a step; -1: nothing
#   await_step JOB STEP PID   waits for a durable step beyond STEP; fails if PID, its trainer, has ended
#   train_through_kills JOB KILLS CALM [FLAG…]   trains it; its daemon is killed so often, if the trainer does not end before
#
# CALM is a job that has been trained alike, undisturbed, to $scratch/CALM. Daemons are started with $flags.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"
steps=400
flags='--durability auto'

run_gpt() {
	timeout 100 "$gpt" --layers 2 --width 64 --heads 2 --context 32 --batch 2 --threads 1 --log-every 0 \
		--loss-scale dynamic:1024 --data "$scratch/data" --ranks 2 "$@"
}

step_of() { # JOB KEY
	"$TIERCTL" --json jobs | python3 -c '
import json, sys
print(next((job.get(sys.argv[2], -1) for job in json.load(sys.stdin) if job["name"] == sys.argv[1]), -1))' "$1" "$2"
}

# Waits for a durable step beyond the one given.
await_step() { # JOB STEP PID
	await is_beyond_or_ended "$@" || fail "no step of $1 beyond $2 is durable: $("$TIERCTL" jobs)"
	kill -0 "$3" 2>/dev/null
}

is_beyond_or_ended() { # JOB STEP PID
	[ "$(step_of "$1" durable_step)" -gt "$2" ] || ! kill -0 "$3" 2>/dev/null
}

# Trains JOB, whose daemon is killed at least twice; its bits are those of CALM.
train_through_kills() { # JOB KILLS CALM [FLAG…]
	job=$1 most=$2 calm=$3
	shift 3
	TIERD_RECONNECT_MS=60000 run_gpt --steps $steps --job "$job" --dump "$scratch/dump" "$@" >"$scratch/out" 2>&1 &
	trainer=$!
	kills=0 last=1
	while [ $kills -lt "$most" ] && await_step "$job" $((last + 5)) $trainer; do
		last=$(step_of "$job" durable_step)
		tierd_kill
		# shellcheck disable=SC2086 # they are several words
		tierd_start $flags
		now=$(step_of "$job" durable_step)
		# It may have been about to say more.
		[ "$now" -ge "$last" ] || fail "step $last was durable, and is $now now"
		[ "$(step_of "$calm" durable_step)" -eq $steps ] || fail "the other job: $("$TIERCTL" jobs)"
		kills=$((kills + 1))
	done
	wait $trainer || fail "gpt: $(cat "$scratch/out")"
	[ $kills -ge 2 ] || fail "the daemon was killed $kills times only"
	cmp "$scratch/$calm" "$scratch/dump" || fail "$job: other bits after kills"
}
