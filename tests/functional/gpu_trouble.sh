#!/bin/sh
# GPUs, which a stand-in plays, that are not there, not as they should be, or fail: ranks are told what, and of what, and go on in
# host memory with the same values; tierd says it once, and stays.
#   gpu_trouble.sh STAND-INS PROGRAM           what may be the matter with a machine
#   gpu_trouble.sh STAND-INS PROGRAM hangs     calls of the driver and of NVML do not return, and tierd ends all the same
#   gpu_trouble.sh STAND-INS PROGRAM errors    each call of the driver fails in tierd, the first time and later
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2

# NAME=VALUE…: the daemon has these; without LD_LIBRARY_PATH it has the stand-ins.
daemon_with() {
	export LD_LIBRARY_PATH="$standins"
	for setting; do export "${setting?}"; done
	tierd_start
	for setting; do unset "${setting%%=*}"; done
	export LD_LIBRARY_PATH="$standins"
}

# STATUS NAME=VALUE… -- ARGUMENT…: a trainer has these.
trainer_with() {
	expected_status=$1
	shift
	settings=
	while [ "$1" != -- ]; do
		settings="$settings $1"
		shift
	done
	shift
	# shellcheck disable=SC2086 # several settings
	expect_status "$expected_status" env $settings "$program" "$@"
}

# The values that a trainer ends with, whatever it went through.
sum_of() {
	printf '%s\n' "$output" | sed -n 's/^sum: //p'
}
expect_same_values() {
	[ "$(sum_of)" = "$right" ] || fail "other values: $output"
}

# How often tierd has said it.
expect_said() { # TIMES TEXT
	said=$(grep -c "$2" "$tierd_log" || true)
	[ "$said" -eq "$1" ] || fail "tierd says '$2' $said times, not $1"
}

end_daemon() {
	tierd_stop
	forget_jobs
	: >"$tierd_log"
}

daemon_with
trainer_with 0 -- job 2 0
right=$(sum_of)
expect_text 'on the GPU: 6'

if [ "${3-}" = hangs ]; then
	end_daemon
	# Those of the GPU's thread, of who closes the GPU, and of who looks at its sensors.
	for hang in 'cuMemHostUnregister:GPU 0 (stand-in): its driver has not come back from a call for 5 s; ' \
		'cuStreamDestroy_v2:the closing of GPU 0 has not ended for 5 s; ' \
		'nvmlDeviceGetHandleByUUID:NVML.s look at sensors of GPU 0 has not ended for 5 s; '; do
		: >"$scratch/blocks"
		daemon_with "STANDIN_BLOCKS=${hang%%:*}=$scratch/blocks"
		trainer_with 0 -- job 2 0
		expect_text 'on the GPU: 6'
		tierd_stop
		expect_said 1 "${hang#*:}tierd ends without it"
		expect_said 1 'ended, without what a GPU has not given back'
		forget_jobs
		: >"$tierd_log"
	done
	# A copy that never ends, though the driver answers: a step that was decided waits for it.
	: >"$scratch/blocks"
	export STANDIN_BLOCKS="copy=$scratch/blocks"
	tierd_start --log-level debug
	unset STANDIN_BLOCKS
	"$program" stuck 1 0 blind >"$scratch/out" 2>&1 &
	waiting=$!
	await grep -q 'job stuck, step 0: it is decided' "$tierd_log" || fail "no step: $(cat "$scratch/out")"
	[ -s "$scratch/blocks" ] || fail 'nothing hangs'
	tierd_stop
	kill "$waiting" 2>/dev/null || true
	wait "$waiting" || true
	expect_said 1 'GPU 0 (stand-in) is lost: a copy has not ended for 5 s; its jobs go on without it'
	expect_said 1 'the closing of GPU 0 has not ended for 5 s; tierd ends without it'
	daemon_with
	has_value stuck durable_step 1 || fail "the step is lost: $("$TIERCTL" jobs)"
	end_daemon
	# One that opens the GPU: its trainer waits until then, and no other job does.
	: >"$scratch/blocks"
	daemon_with "STANDIN_BLOCKS=cuDevicePrimaryCtxRetain=$scratch/blocks"
	"$program" job 2 0 >"$scratch/out" 2>&1 &
	waiting=$!
	await test -s "$scratch/blocks" || fail 'nothing hangs'
	tierd_stop
	expect_said 1 'the opening of GPU 0 has not ended for 5 s; tierd ends without it'
	kill "$waiting" 2>/dev/null || true
	wait "$waiting" || true
	exit
fi

if [ "${3-}" = errors ]; then
	# Some of them tierd does not need: then nobody is refused.
	end_daemon
	for call in cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceTotalMem_v2 cuDeviceGetUuid_v2 \
		cuDeviceGetAttribute cuDeviceCanAccessPeer cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxRetain cuCtxSetCurrent \
		cuMemGetAllocationGranularity cuMemCreate cuMemExportToShareableHandle cuMemAddressReserve cuMemMap cuMemSetAccess \
		cuMemHostRegister_v2 cuStreamCreate cuStreamWaitEvent cuMemcpyAsync cuEventCreate cuEventRecord cuEventQuery \
		cuIpcGetEventHandle cuIpcOpenEventHandle cuMemUnmap cuMemAddressFree cuMemRelease cuMemHostUnregister cuEventDestroy_v2 \
		cuStreamDestroy_v2 cuDevicePrimaryCtxRelease_v2 nvmlInit_v2; do
		for nth in '#1' '#2' '#5' ''; do
			daemon_with "STANDIN_FAILURES=$call$nth=999" STANDIN_GPUS=2
			trainer_with 0 STANDIN_GPUS=2 -- job 2 0
			expect_same_values
			# Whoever is refused is told what tierd knows: the call, or what it has made of it.
			case $output in
			*refused*) expect_text '(error 999)' ;;
			*) expect_text 'on the GPU: 6' ;;
			esac
			end_daemon
		done
	done
	exit
fi

# ---- What the trainer finds ----

trainer_with 2 LD_LIBRARY_PATH=/nowhere -- job 1 0
expect_text 'refused: ENODEV'
expect_text 'libcuda.so.1'
trainer_with 2 STANDIN_CUDA=11080 -- job 1 0
expect_text 'refused: ENODEV'
expect_text 'it is for CUDA 11.8, and tierd needs one for CUDA 12.0 or newer'
trainer_with 2 CUDA_VISIBLE_DEVICES= -- job 1 0
# shellcheck disable=SC2016 # the message has the name
expect_text 'it shows no GPU: $CUDA_VISIBLE_DEVICES is ""'
# It may not open the device.
trainer_with 2 STANDIN_FAILURES=cuInit=304 -- job 1 0
expect_text 'refused: ENODEV'
expect_text '(error 304)'
trainer_with 2 -- job 1 7
expect_text 'refused: ENODEV'
expect_text 'GPU 7'
# It goes by what it has; the daemon knows the GPU by its UUID.
trainer_with 0 STANDIN_GPUS=1 -- job 2 0
expect_text 'on the GPU: 6'
expect_same_values
end_daemon

# ---- What the daemon finds ----

# GPUs that do not reach one another, and slices of one.
for setting in STANDIN_PEERS=0 STANDIN_MIG=1; do
	daemon_with STANDIN_GPUS=2 "$setting"
	trainer_with 0 STANDIN_GPUS=2 "$setting" -- job 2 1
	expect_text 'on the GPU: 6'
	expect_same_values
	end_daemon
done

# trouble SETTING TEXT [EXPECTED-STATUS]: so tierd refuses memory on the GPU, says it once, and the rank goes on.
trouble() {
	daemon_with STANDIN_GPUS=2 "$1"
	trainer_with 0 STANDIN_GPUS=2 -- job 2 0
	expect_text 'refused: EOPNOTSUPP: job "job" has no memory on GPU 0: '
	expect_text "$2"
	expect_text 'call tierd_gather'
	expect_text 'on the GPU: 0'
	expect_same_values
	expect_said 1 'job job has no memory on a GPU: '
	end_daemon
}

trouble LD_LIBRARY_PATH=/nowhere 'tierd sees no GPU: libcuda.so.1: cannot open shared object file'
trouble STANDIN_CUDA=11080 'tierd sees no GPU: it is for CUDA 11.8, and tierd needs one for CUDA 12.0 or newer; see "tierctl doctor"'
trouble STANDIN_FAILURES=cuInit=304 'tierd sees no GPU: it does not start: '
trouble CUDA_VISIBLE_DEVICES=1 'tierd sees 1 GPU, and that of the rank is not among them; see "tierctl doctor", and CUDA_VISIBLE_DEVICES of tierd'
trouble STANDIN_COMPUTE_MODE=2 'GPU 0 (stand-in) lets nobody use it: nvidia-smi --compute-mode=0 changes that'
trouble STANDIN_DESCRIPTORS=0 'by descriptor'
trouble STANDIN_BYTES=8000000 'the job needs at least 8.0 MiB of GPU 0 (stand-in) for its largest units'
# What it has is another program's.
trouble STANDIN_FAILURES=cuMemCreate=2 'the job needs at least 8.0 MiB of GPU 0 (stand-in) for its largest units, two of each size, and does not get it: GPU 0 (stand-in): 8.0 MiB are wanted, and 1024.0 of 1024.0 MiB are free; end what else uses that GPU'

# ---- It fails while it is used ----

# A GPU falls off the bus: who is on it is told, by its name, and goes on without; who is on another one notices nothing. It does so
# at a call of tierd: with a copy under way the rank's own driver would fail, too, which the stand-in's does not.
daemon_with STANDIN_GPUS=2 'STANDIN_FAILURES=cuMemcpyAsync#4=719!'
trainer_with 0 STANDIN_GPUS=2 -- job 3 0
lost=$output
case $lost in
*'GPU 0 (stand-in) is lost: '*) expect_text 'refused: ENODEV' ;;
*) fail "nobody is told of the loss: $lost" ;;
esac
expect_said 1 'GPU 0 (stand-in) is lost: .*; its jobs go on without it'
trainer_with 0 STANDIN_GPUS=2 -- other 2 1
expect_text 'on the GPU: 6'
expect_same_values
"$TIERCTL" jobs >/dev/null || fail 'tierd does not answer'
end_daemon
