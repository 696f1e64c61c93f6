#!/bin/sh
# Forks: jobs of one store, made, trained beside each other, brought back after kills, rolled back, replaced and dropped;
# what is refused says why.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
export KNOWN="$scratch/known" NVME="$nvme"

play() {
	python3 "$(dirname "$0")/forks.py" "$program" "$1" || fail "$1: see above"
}

tierd_start
play before
tierd_kill
tierd_start
play after_a_kill
tierd_kill
tierd_start
play after_another_kill
tierd_stop
tierd_start
play after_an_end
play mostly_frozen
tierd_kill
tierd_start
play mostly_frozen_after_a_kill
tierd_stop
