#!/bin/sh
# SIGTERM finishes a step that is being applied; SIGKILL leaves clear errors with the trainers, and a daemon that
# starts in the same folders says what it found there.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

mkfifo "$scratch/said"

# Starts the program and waits for its word.
begin() {
	"$program" "$1" >"$scratch/said" &
	trainer=$!
	read -r said <"$scratch/said" || fail "'signals $1' ended"
	[ "$said" = "$2" ] || fail "'signals $1' says '$said'"
}

end() {
	wait "$trainer" || fail 'the trainer, see above'
}

tierd_start
begin step decided
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status after SIGTERM in a step"
end
[ "$(find "$nvme" -name '*.store' | wc -l)" -eq 1 ] || fail 'the store of the job is not there'
forget_jobs
grep -q 'finishing the steps that were decided' "$tierd_log" || fail 'it does not say that it ends'

for what in wait:waiting train:training; do
	tierd_start
	begin "${what%:*}" "${what#*:}"
	tierd_kill
	end
done
[ "$(find "$nvme" -name '*.store' | wc -l)" -eq 1 ] || fail 'the killed daemon should have left its store file'
tierd_start
# It may have been killed before its first commit.
grep -Eq 'job signals of user [0-9]*: it is back at step [0-9]|signals-1.store: nothing was ever committed' "$tierd_log" ||
	fail 'nothing is said about what the killed daemon left'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
