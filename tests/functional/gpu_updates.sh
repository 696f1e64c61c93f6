#!/bin/sh
# Updates on GPUs that a stand-in plays, by a daemon whose kernels are functions: values are those of processors, for each
# fraction, also where a rank is killed, and where state stays on GPUs.
# shellcheck source=tests/functional/lib.sh disable=SC2034,SC2119 # TIERD is lib.sh's
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2
TIERD=$3

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# GPUS DEATHS FRACTION [UNITS_ON_GPU [STEPS]]
train() {
	tierd_start
	expect_status 0 "$program" "$1" "${5:-4}" "${4:-0}" "$2" "$3"
	hash=$output
}

# Whose job is dropped with the daemon.
end() {
	tierd_stop
	forget_jobs
}

train 00 0 0
by_processors=$hash
json 'j[0]["updated_by_gpus"] == 0 and j[0]["updated_by_processors"] == 4 * 6 * 2**20' jobs
end
for fraction in 1 -1; do
	train 00 1 $fraction
	[ "$hash" = "$by_processors" ] || fail "fraction $fraction gives $hash, not $by_processors"
	json 'j[0]["updated_by_gpus"] > 0 and j[0]["update_to_gpu_bytes"] > j[0]["update_from_gpu_bytes"] > 0' jobs
	end
done

# All units, and state beside them.
train 00 0 0 0 8
by_processors=$hash
end
STANDIN_GPUS=2
export STANDIN_GPUS
for gpus in 00 01; do
	train $gpus 0 1 40 8
	[ "$hash" = "$by_processors" ] || fail "state that stays on $gpus gives $hash, not $by_processors"
	# How much it is depends on when the GPU's memory has come; test_update_mirrors counts it.
	json 'j[0]["update_spared_bytes"] > 0 and j[0]["update_to_gpu_bytes"] > 0' jobs
	end
	train $gpus 1 1 40 8
	[ "$hash" = "$by_processors" ] || fail "state that stays on $gpus gives $hash when a rank dies, not $by_processors"
	end
done
