#!/bin/sh
# Gradients pushed from the memory of a GPU that a stand-in plays have the bits of those pushed from host memory: with one rank and
# two, each stage, all formats, from both memories at once; with a GPU that is late, so that whoever does not wait for it finds
# other gradients, and is found by the stand-in.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
push() {
	tierd_start
	expect_status 0 "$program" "$@"
	tierd_stop
	forget_jobs
}
if [ "${3-}" = deaths ]; then
	# A rank is killed again and again, with pushes under way.
	export STANDIN_DELAY_US=700
	for stage in 0 1 2 3; do
		push 2 $stage bf16 0 gpu 4
		push 2 $stage fp32 4 mixed 4
	done
	exit
fi
push 1 0 fp32 0 gpu
push 2 3 bf16 0 gpu
push 2 2 wide 16 mixed
STANDIN_DELAY_US=700
export STANDIN_DELAY_US
push 1 3 bf16 0 mixed
push 2 0 wide 0 gpu
push 2 1 fp32 0 mixed
push 2 3 fp32 0 gpu
