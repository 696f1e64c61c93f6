#!/bin/sh
# Jobs of one store, in daemons that die at one write or flush of their lives after the other: each that is there then is whole.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
export KNOWN="$scratch/known" NVME="$nvme"

play() {
	python3 "$(dirname "$0")/forks.py" "$program" "$1"
}

# It lives to the end, or dies before.
live() { # FAULT
	tierd_start --fault "kill:$1"
	if play live_and_die >"$scratch/lived" 2>&1; then
		# Unless it dies at its end.
		kill -TERM "$tierd_pid" 2>/dev/null || true
		wait "$tierd_pid" || true
		tierd_pid=
		return
	fi
	await has_died || fail "$1: it has not died: $(cat "$scratch/lived")"
	wait "$tierd_pid" 2>/dev/null || true
	tierd_pid=
	died=$((died + 1))
}

has_died() {
	! kill -0 "$tierd_pid" 2>/dev/null
}

look() { # FAULT
	tierd_start
	play what_is_left || fail "$1: see above"
	tierd_stop
}

tierd_start
play states_of_a_small_one || fail 'see above'
tierd_stop
for kind in 'write 17' 'flush 5'; do
	before=-1 died=0 number=1
	while [ $died -gt $before ]; do
		before=$died
		live "${kind% *}:$number"
		look "${kind% *}:$number"
		number=$((number + ${kind#* }))
	done
	[ $died -gt 5 ] || fail "$died daemons have died at a ${kind% *}"
done
