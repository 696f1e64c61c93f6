#!/bin/sh
# First values in host memory, those of an optimizer that has kept something before among them, outlive the daemon: it is killed
# before the first step and after it, and the bits are those of a job that nobody disturbed.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

# A rank with a job of its own, which has taken STEPS steps and stays; JOB PARAMETERS FIRST STEPS
stay() {
	mkfifo "$scratch/in" "$scratch/out"
	"$program" begin "$1" "$2" "$3" "$4" <"$scratch/in" >"$scratch/out" &
	rank=$!
	exec 7>"$scratch/in" 8<"$scratch/out"
	read -r _ <&8 || fail "no rank of $1"
}

leave() {
	echo >&7
	exec 7>&- 8<&-
	rm "$scratch/in" "$scratch/out"
	wait $rank || fail "the rank ends with $?"
}

for configuration in 'host fresh' 'host 0' 'nvme fresh' 'nvme 7'; do
	parameters=${configuration% *} first=${configuration#* }
	step=${first#fresh}
	tierd_start
	stay calm "$parameters" "$first" 0
	leave
	expect_status 0 "$program" finish calm "$parameters" "$first" "$scratch/calm"
	for steps in 0 1; do
		job=wild-$steps
		stay $job "$parameters" "$first" $steps
		await_durable $job $((step + steps))
		tierd_kill
		tierd_start
		leave
		[ "$(value_of $job step)" -eq $((step + steps)) ] || fail "it is back at another step: $("$TIERCTL" jobs)"
		expect_status 0 "$program" finish $job "$parameters" "$first" "$scratch/wild"
		cmp "$scratch/calm" "$scratch/wild" || fail "$configuration: other bits after a kill behind $steps steps"
	done
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
	forget_jobs
done
