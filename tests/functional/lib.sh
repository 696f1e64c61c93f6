# shellcheck shell=sh
# Sourced by every functional test: a private daemon, ended with the test.
#
#   tierd_start [FLAG…]   starts $TIERD, on whatever file system the build folder is, and waits until it answers;
#                         tierd_pid is its pid, tierd_log its log
#   tierd_launch [FLAG…]  starts it, and does not wait
#   tierd_stop            ends it with SIGTERM, and fails unless its exit status is 0
#   await COMMAND…        waits until it succeeds; fails itself if it never does, so say "await … || fail …"
#   await_training JOB PID   waits until the job of gpt, in the background and with its output in $scratch/out, has taken a step
#   expect_status N COMMAND…   runs it; fails unless it exits with N; its output is in $output
#   expect_text TEXT      fails unless $output contains it
#   value_of JOB KEY   what tierctl jobs says under KEY; -1: nothing; has_value JOB KEY VALUE
#   await_durable JOB STEP   waits until that step is durable
#   json EXPRESSION COMMAND…   evaluates it over j, what tierctl --json COMMAND says; fails unless it is true
#   use_gpt PROGRAM       it is $gpt, the example trainer, has something to train on, and no ranks of torchrun's
#   run_gpt FLAG…         trains a small job with it, with $gpt_flags, too; later flags win
#   train FLAG…           the same; fails unless it does, with its output in $scratch/out
#   fail MESSAGE, skip REASON
#
# timeout "$patience" COMMAND… is for what may hang.
# $scratch is a private folder in /tmp (paths of sockets are short), $nvme one on the disk of the build folder.
# $TIERD and $TIERCTL are the programs; $TIERD_SOCKET is where the daemon listens, for tierctl and libtierd.
set -eu

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

skip() {
	echo "skipped: $*"
	exit 77
}

[ -x "${TIERD:-}" ] || skip 'TIERD does not name the daemon'
[ -x "${TIERCTL:-}" ] || skip 'TIERCTL does not name tierctl'

scratch=$(mktemp -d /tmp/tierd-test-XXXXXX)
nvme=$(mktemp -d "${TIERD_TEST_DISK:-${TMPDIR:-$PWD}}/tierd-nvme-XXXXXX")
nvme_capacity=1G
# Seconds that nothing here takes, on a busy machine and with sanitizers: who takes so long hangs.
patience=200
tierd_pid=
tierd_log=$scratch/log
tierd_status=
gpt_flags=
output=
TIERD_SOCKET=$scratch/run/tierd.sock
XDG_CONFIG_HOME=$scratch/config
# The daemon makes the folder of its socket there.
XDG_RUNTIME_DIR=$scratch
# All columns of tables: what a test looks for is there, however long the names beside it are.
COLUMNS=10000
export TIERD TIERCTL TIERD_SOCKET XDG_CONFIG_HOME XDG_RUNTIME_DIR COLUMNS

clean_up() {
	status=$?
	trap - EXIT
	if [ -n "$tierd_pid" ]; then
		kill -KILL "$tierd_pid" 2>/dev/null || true
		wait "$tierd_pid" 2>/dev/null || true
	fi
	if [ $status -ne 0 ] && [ $status -ne 77 ] && [ -f "$tierd_log" ]; then
		echo '--- log of tierd:' >&2
		tail -n 50 "$tierd_log" >&2
	fi
	rm -rf "$scratch" "$nvme"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# The pause is for what is waited for: who looks again and again takes a processor away from it. The deadline is for hangs, and
# goes by the clock: a number of looks is soon over where looking is quick and a disk slow.
await() { # COMMAND…
	read -r await_end _ </proc/uptime
	await_end=$((${await_end%.*} + patience))
	until "$@"; do
		read -r await_now _ </proc/uptime
		[ "${await_now%.*}" -lt "$await_end" ] || return 1
		sleep 0.02
	done
}

tierd_answers() {
	kill -0 "$tierd_pid" 2>/dev/null || fail 'the daemon ended while it started'
	"$TIERCTL" ping >/dev/null 2>&1
}

tierd_launch() {
	"$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" --host-budget 256M --nvme "$nvme:$nvme_capacity" \
		--file-system memory --workers 2 "$@" 2>>"$tierd_log" &
	tierd_pid=$!
}

tierd_start() {
	tierd_launch "$@"
	await tierd_answers || fail 'the daemon does not answer'
}

tierd_stop() {
	# It may have ended already, as the test wanted: what counts is its exit status.
	kill -TERM "$tierd_pid" 2>/dev/null || true
	tierd_status=0
	wait "$tierd_pid" || tierd_status=$?
	tierd_pid=
	[ "$tierd_status" -eq 0 ] || fail "the daemon ends with $tierd_status"
	! grep -qs 'takes one turn after the other' "$tierd_log" || fail 'a job has got nothing done, turn after turn'
}

# After the end of a daemon: nothing but what jobs keep is left, and the next one does not know them.
forget_jobs() {
	# Below the path: what is above it may be called tierd, too.
	left=$(cd "$nvme" && find . -path '*/tierd/*' -type f ! -name '*.store' ! -name mark)
	[ -z "$left" ] || fail "left: $left"
	find "$nvme" -name '*.store' -delete
	rm -f "$scratch/state/jobs"
}

tierd_kill() {
	kill -KILL "$tierd_pid"
	wait "$tierd_pid" 2>/dev/null || true
	tierd_pid=
}

expect_status() {
	expected=$1
	shift
	actual=0
	output=$("$@" 2>&1) || actual=$?
	[ "$actual" -eq "$expected" ] || fail "'$*' exits with $actual instead of $expected: $output"
}

expect_text() {
	case $output in
	*"$1"*) ;;
	*) fail "'$1' is not in: $output" ;;
	esac
}

json() { # EXPRESSION COMMAND…
	expression=$1
	shift
	"$TIERCTL" --json "$@" >"$scratch/json" || fail "tierctl --json $* fails"
	python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), j' \
		"$scratch/json" "$expression" || fail "tierctl --json $*: not $expression"
}

use_gpt() { # PROGRAM
	gpt=$1
	unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
	# Its default, the sources, may change meanwhile.
	cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"
}

run_gpt() {
	# shellcheck disable=SC2086 # several words
	timeout "$patience" "$gpt" --layers 1 --width 32 --heads 2 --context 16 --batch 2 --threads 1 --log-every 0 \
		--data "$scratch/data" $gpt_flags "$@"
}

train() {
	run_gpt "$@" >"$scratch/out" 2>&1 || fail "gpt $*: $(cat "$scratch/out")"
}

value_of() { # JOB KEY
	"$TIERCTL" --json jobs | python3 -c '
import json, sys
print(next((job.get(sys.argv[2], -1) for job in json.load(sys.stdin) if job["name"] == sys.argv[1]), -1))' "$1" "$2"
}

has_value() { # JOB KEY VALUE
	[ "$(value_of "$1" "$2")" = "$3" ]
}

await_durable() { # JOB STEP
	await has_value "$1" durable_step "$2" || fail "step $2 of $1 does not become durable: $("$TIERCTL" jobs)"
}

open_descriptors() {
	find "/proc/$tierd_pid/fd" -mindepth 1 | wc -l
}

await_training() { # JOB PID
	await is_trained_by "$@" || fail "job $1 takes no step: $("$TIERCTL" jobs "$1")"
}

is_trained_by() { # JOB PID
	kill -0 "$2" 2>/dev/null || fail "gpt ended: $(cat "$scratch/out")"
	"$TIERCTL" jobs "$1" 2>/dev/null | grep -q 'training, step [1-9]'
}

# Waits until tierd has no more descriptors open than this: it closes those of clients after they have gone.
await_descriptors() {
	await has_descriptors_at_most "$1" || fail "$1 descriptors before, $(open_descriptors) after"
}

has_descriptors_at_most() {
	[ "$(open_descriptors)" -le "$1" ]
}
