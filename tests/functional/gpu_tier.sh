#!/bin/sh
# Units in the memory of a GPU that a stand-in plays: with room for all of them, and for few; by one rank, and by two that share
# it; with a GPU that is late, so that whoever does not wait for it finds other values, and is found by the stand-in.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
if [ "${3-}" = deaths ]; then
	# A rank is killed again and again, with kernels under way.
	export STANDIN_DELAY_US=700
	for budget in 0 2 0 2 0 2 0 2; do
		tierd_start
		expect_status 0 "$program" 00 8 $budget 4
		tierd_stop
		forget_jobs
	done
	exit
fi
for delay in 0 700; do
	STANDIN_DELAY_US=$delay
	export STANDIN_DELAY_US
	for budget in 0 2 4; do
		for ranks in 0 00; do
			tierd_start
			expect_status 0 "$program" $ranks 3 $budget
			tierd_stop
			forget_jobs
		done
	done
done
