#!/bin/sh
# Values that ranks write between two steps: they are there from the end of the writing on, all of them, and survive the daemon as a step
# does; whoever is killed before that leaves the job as it was.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
mkfifo "$scratch/told"

tierd_start
timeout "$patience" "$program" || fail 'see above'

begin() { # JOB PLACE STEP
	timeout "$patience" "$program" train "$1" "$2" "$3" 3>"$scratch/told" >"$scratch/out" &
	rank=$!
	exec 4<"$scratch/told"
	read -r word <&4 || fail "no word of the rank of $1"
	[ "$word" = written ] || fail "the rank of $1 says $word"
}

for place in nvme host; do
	# The job is made, and what is written to it stays.
	begin kept-$place $place 0
	wait $rank || fail "the rank of kept-$place ends with $?"
	tierd_kill
	tierd_start
	begin kept-$place $place 1
	wait $rank || fail "the rank of kept-$place, behind a kill, ends with $?"

	# The daemon is killed as soon as all is written, before its end is told or after that: all of it is there, or nothing.
	begin cut-$place $place 0
	wait $rank || fail "the rank of cut-$place ends with $?"
	for step in 1 2 3; do
		begin cut-$place $place "${last:-1}"
		tierd_kill
		tierd_start
		wait $rank || fail "the rank of cut-$place, from step ${last:-1} on, ends with $?"
		last=$(value_of cut-$place step)
		[ "$last" -le $((step + 1)) ] || fail "cut-$place is at step $last"
	done
	unset last
done
[ -z "$(find "$nvme" -name '*.draft')" ] || fail "left: $(find "$nvme" -name '*.draft')"
tierd_stop
