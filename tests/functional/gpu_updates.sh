#!/bin/sh
# Updates on a GPU that a stand-in plays, by a daemon whose kernels are functions: values are those of processors, for each
# fraction, also where a rank is killed.
# shellcheck source=tests/functional/lib.sh disable=SC2034,SC2119 # TIERD is lib.sh's
. "$(dirname "$0")/lib.sh"
standins=$1
program=$2
TIERD=$3

LD_LIBRARY_PATH=$standins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# GPUS DEATHS FRACTION
train() {
	tierd_start
	expect_status 0 "$program" "$1" 4 0 "$2" "$3"
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
