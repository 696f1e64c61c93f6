#!/bin/sh
# Snapshots: taken while a job is trained, kept through a kill of the daemon, read, compared, deleted, and rolled back to;
# what is refused says why.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
export KNOWN="$scratch/known"

play() {
	python3 "$(dirname "$0")/snapshots.py" "$program" "$1" || fail "$1: see above"
}

tierd_start
play before
tierd_kill
tierd_start
play after_a_kill
tierd_stop
tierd_start
play after_an_end
tierd_stop
