#!/bin/sh
# Gradients that the ranks of a job push from one GPU, which a stand-in plays, and which sums them by functions that are its
# kernels: the bits are those of gradients pushed from host memory. With two ranks, three and four, all formats, units that some
# ranks do not push, pushes from host memory among them, a rank that is killed, and kernels that are late; and where the GPU
# makes the updates, too, of state that stays there. Then the same on two GPUs, which sum together.
# shellcheck source=tests/functional/lib.sh disable=SC2034,SC2119 # TIERD is lib.sh's
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2
TIERD=$3

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# What job "gpu" has of its figures, and job "host" has not.
expect_sums() {
	json 'all((job["gpu_summed_bytes"] > 0) == (job["name"] == "gpu") for job in j)' jobs
}

push() {
	tierd_start --gpu-sums always --gpu-exchange always
	expect_status 0 "$program" "$@"
	expect_sums
	[ "$5" != updated ] || json 'any(job["update_spared_bytes"] > 0 for job in j)' jobs
	tierd_stop
	forget_jobs
}
if [ "${4-}" = deaths ]; then
	export STANDIN_DELAY_US=700
	for format in bf16 fp32 fp16; do
		push 2 3 $format 0 gpu 4
		push 2 2 $format 0 mixed 4
		push 3 2 $format 32 some 4
		STANDIN_GPUS=2 push 2 3 $format 0 several 4
		STANDIN_GPUS=2 push 3 2 $format 0 several 4
	done
	exit
fi
push 2 3 bf16 0 gpu
push 3 2 fp32 0 some
STANDIN_DELAY_US=700
export STANDIN_DELAY_US
push 4 2 fp16 0 some
push 2 3 wide 0 mixed
push 2 3 fp16 0 gpu 1
push 2 2 fp32 64 updated
push 3 3 fp16 64 updated 1
export STANDIN_GPUS=2
push 2 3 bf16 0 several
push 3 2 fp32 0 several
push 4 2 wide 0 several
push 2 2 fp16 0 several 1
