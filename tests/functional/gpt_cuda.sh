#!/bin/sh
# The example trainer on a GPU that a stand-in plays, with cuBLAS played, too: it learns what it learns on processors, with memory
# of the GPU for units and gradients, for units alone, or for neither, alone and as two ranks. What is missing, or fails, is said.
# shellcheck source=tests/functional/lib.sh disable=SC2086,SC2119 # several words
. "$(dirname "$0")/lib.sh"
standins=$1
use_gpt "$2"

gpt_flags="--format fp32 --steps 4 --log-every 0 --stage 2 --threads 1 --data $scratch/data"
on_gpu() { # VARIABLE=VALUE… -- FLAG…
	environment=
	while [ "$1" != -- ]; do
		environment="$environment $1"
		shift
	done
	shift
	env LD_LIBRARY_PATH="$standins" $environment "$gpt" --layers 2 --width 32 --heads 2 --context 16 --batch 2 --device cuda $gpt_flags "$@"
}
on_processors() {
	"$gpt" --layers 2 --width 32 --heads 2 --context 16 --batch 2 $gpt_flags "$@"
}

# same_losses FILE FILE: to the last bits, which the order of sums decides
same_losses() {
	python3 - "$1" "$2" <<-'END' || fail "other losses: $(cat "$1" "$2")"
		import json, sys
		one, other = (json.load(open(name))["losses"] for name in sys.argv[1:])
		sys.exit(len(one) != len(other) or any(abs(a - b) > 2e-5 for a, b in zip(one, other)))
	END
}

# ---- What is missing

expect_status 1 env CUDA_VISIBLE_DEVICES= "$gpt" --device cuda --no-tierd
expect_text "gpt: --device cuda: no GPU was found by NVIDIA's driver, libcuda.so.1: "
expect_status 1 on_gpu STANDIN_FAILURES=cuInit=999 -- --no-tierd
expect_text "it shows no GPU: the stand-in's error 999 (error 999); train with --device cpu"
expect_status 1 on_gpu STANDIN_FAILURES=cublasCreate_v2=3 -- --no-tierd
expect_text 'gpt: --device cuda: GPU 0, stand-in: cublasCreate: cuBLAS has failed (error 3)'
expect_status 1 on_gpu STANDIN_BYTES=4194304 -- --no-tierd --batch 64 --context 128
expect_text "cannot set up the model: GPU 0, stand-in: cuMemAlloc: the stand-in's error 2 (error 2); make it or --batch smaller"
expect_status 1 on_gpu STANDIN_FAILURES=kernel#40=700 -- --no-tierd
expect_text "gpt: rank 0: GPU 0, stand-in: "
expect_status 1 on_gpu STANDIN_FAILURES=cublasGemmStridedBatchedEx#9=14 -- --no-tierd
expect_text 'gpt: rank 0: GPU 0, stand-in: cublasGemmStridedBatchedEx: cuBLAS has failed (error 14)'

# ---- What it learns

on_processors --no-tierd --json "$scratch/plain" >"$scratch/out"
on_gpu -- --no-tierd --json "$scratch/copied" >"$scratch/out" 2>&1
same_losses "$scratch/plain" "$scratch/copied"
grep -q 'gpt: units are copied to the GPU from host memory' "$scratch/out" || fail 'it does not say that it copies units'

LD_LIBRARY_PATH=$standins
export LD_LIBRARY_PATH
# The daemon has room on the GPU for units and gradients, or for units alone.
STANDIN_DELAY_US=200
export STANDIN_DELAY_US
for bytes in 1073741824 3145728; do
	STANDIN_BYTES=$bytes
	export STANDIN_BYTES
	tierd_start
	unset STANDIN_BYTES
	on_gpu -- --job one --json "$scratch/gpu" --sample-bytes 8 >"$scratch/out" 2>&1
	! grep -q 'units are copied' "$scratch/out" || fail "$bytes bytes: $(cat "$scratch/out")"
	copied=$(grep -c 'gradients are copied from the GPU to host memory, one after the other: ' "$scratch/out" || true)
	[ "$bytes $copied" = '1073741824 0' ] || [ "$bytes $copied" = '3145728 1' ] || fail "$bytes bytes: $(cat "$scratch/out")"
	same_losses "$scratch/plain" "$scratch/gpu"
	tierd_stop
	forget_jobs
done
on_processors --no-tierd --ranks 2 --json "$scratch/plain2" >"$scratch/out"
tierd_start
on_gpu STANDIN_GPUS=1 -- --ranks 2 --json "$scratch/two" >"$scratch/out" 2>&1
same_losses "$scratch/plain2" "$scratch/two"
# A rank that dies with units on the GPU, and comes back.
on_gpu -- --ranks 2 --job dying --crash-at 1:gather --restart 1 --json "$scratch/dying" >"$scratch/out" 2>&1
same_losses "$scratch/plain2" "$scratch/dying"
