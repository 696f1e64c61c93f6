#!/bin/sh
# Ranks on several GPUs that a stand-in plays: what all of them want next they get from one another, with the values that host
# memory has, also where ranks share a GPU, have none, or die, where NCCL fails or is missing, and where plain copies win.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
STANDIN_GPUS=4
export LD_LIBRARY_PATH STANDIN_GPUS

# GPUS STEPS UNITS_ON_GPU [DEATHS] -- FLAG…
train() {
	arguments=
	while [ "$1" != -- ]; do
		arguments="$arguments $1"
		shift
	done
	shift
	: >"$tierd_log"
	tierd_start "$@"
	# shellcheck disable=SC2086
	expect_status 0 "$program" $arguments
	"$TIERCTL" --json jobs gpu >"$scratch/job"
	tierd_stop
	forget_jobs
}

expect_exchange() { # EXPRESSION, over the bytes and the problem
	python3 -c 'import json, sys
job = json.load(open(sys.argv[1]))
job = job[0] if isinstance(job, list) else job
bytes, problem = job["gpu_exchanged_bytes"], job["gpu_exchange_problem"]
assert eval(sys.argv[2]), (bytes, problem)' "$scratch/job" "$1" || fail "not $1"
}

said='its GPUs exchange nothing, and each copies all from host memory'
# Where there is no NCCL, wherever else there is one.
mkdir "$scratch/without"
ln -s "$standins/libcuda.so.1" "$standins/libnvidia-ml.so.1" "$standins/libstandin_script.so" "$scratch/without"
: >"$scratch/without/libnccl.so.2"

if [ "${3-}" = more ]; then
	# A rank is killed again and again, with packs on their way: each epoch has another communicator.
	for gpus in 01 0101 012; do
		STANDIN_DELAY_US=700 train $gpus 8 2 4 -- --gpu-exchange always
		expect_exchange 'problem == ""'
		STANDIN_DELAY_US=0 train $gpus 8 0 4 -- --gpu-exchange always
		expect_exchange 'bytes > 0 and problem == ""'
	done
	train 01 3 4 -- --gpu-exchange never
	expect_exchange 'bytes == 0 and problem == ""'
	# Where a GPU does not reach the others' memory nothing is begun.
	STANDIN_PEERS=0 train 01 3 4 --
	expect_exchange 'bytes == 0 and problem == ""'
	# At the start; never; and each time again, where ranks come back.
	STANDIN_FAILURES=ncclCommInitRankConfig=2 train 01 3 2 1 -- --gpu-exchange always
	expect_exchange 'bytes == 0 and "ncclCommInitRankConfig" in problem'
	STANDIN_FAILURES=asynchronous=7 train 01 3 2 -- --gpu-exchange always --gpu-exchange-seconds 1
	expect_exchange 'bytes == 0'
	STANDIN_NCCL=21804 train 01 3 2 -- --gpu-exchange always
	expect_exchange 'bytes == 0 and "it is version 2.18.4, and tierd needs 2.19.0 or newer" in problem'
	LD_LIBRARY_PATH=$scratch/without train 01 8 2 2 -- --gpu-exchange always
	[ "$(grep -c "$said" "$tierd_log")" -eq 1 ] || fail 'it is not said once'
	exit
fi

# Ranks that share a GPU, and one that has none; GPUs that are late.
STANDIN_DELAY_US=700 train -0012 3 4 -- --gpu-exchange always
expect_exchange 'bytes > 0 and problem == ""'
# By whichever way is faster here.
train 01 3 0 --
expect_exchange 'problem == ""'
# NCCL fails in the middle, and is missing.
STANDIN_FAILURES=asynchronous#9=6 train 01 3 2 -- --gpu-exchange always
expect_exchange '"another member has ended" in problem'
LD_LIBRARY_PATH=$scratch/without train 01 3 2 -- --gpu-exchange always
expect_exchange 'bytes == 0 and problem.startswith("NCCL cannot be used: ")'
