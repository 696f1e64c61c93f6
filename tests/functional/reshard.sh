#!/bin/sh
# A job goes on with another number of ranks, with the same bits: whether the daemon has it in memory or finds it on the
# devices after it was killed.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

train() { # JOB RANKS STEPS [STAGE [HOSTED]]
	timeout "$patience" "$program" train "$1" "$2" "$3" "$scratch/$1" "${4:-3}" ${5:+"$5"} || fail "$1 with $2 ranks: see above"
}

expect_shown() { # JOB WORLD-SIZE STEP
	json "[(job['world_size'], job['durable_step']) for job in j if job['name'] == '$1'] == [($2, $3)]" jobs
}

expect_parameters() { # JOB TIER
	json "[job['parameter_placement'] for job in j if job['name'] == '$1'] == ['$2']" jobs
}

tierd_start
train calm 1 8
train wild 4 2
expect_shown wild 4 2
train wild 2 2
expect_shown wild 2 4
tierd_kill
tierd_start
# What the next commit says is there after a kill, in a definition of the same length.
expect_shown wild 2 4
train wild 1 1
tierd_kill
tierd_start
expect_shown wild 1 5
train wild 3 2
train wild 6 1
tierd_stop
tierd_start
expect_shown wild 6 8
# Below stage 3 parameters live in host memory, and come back there from the devices.
train wild 2 1 1
train wild 3 1 0
tierd_kill
tierd_start
expect_parameters wild host
train wild 3 1 0
train wild 4 1 2
train wild 1 1 3
expect_parameters wild nvme
expect_shown wild 1 13
train calm 1 5
cmp "$scratch/calm" "$scratch/wild" || fail 'other bits after other numbers of ranks'
# What of it lives in host memory is on the devices when it has come to rest, and comes back from there.
for hosted in optimizer all; do
	train $hosted 4 2 3 $hosted
	train $hosted 2 2 3 $hosted
	tierd_kill
	tierd_start
	expect_shown $hosted 2 4
	train $hosted 1 1 3 $hosted
	# Parameters that live on NVMe at stage 3 alone.
	train $hosted 3 1 1 $hosted
	expect_parameters $hosted host
	train $hosted 6 1 0 $hosted
	tierd_kill
	tierd_start
	expect_shown $hosted 6 7
	train $hosted 4 2 2 $hosted
	train $hosted 1 2 3 $hosted
	tierd_kill
	tierd_start
	train $hosted 2 2 3 $hosted
	expect_shown $hosted 2 13
	cmp "$scratch/calm" "$scratch/$hosted" || fail "other bits with state in host memory: $hosted"
	"$TIERCTL" drop $hosted --yes >/dev/null
done
# Without a step nothing is committed, and the daemon that comes next knows nothing of it.
train wild 3 0
expect_shown wild 3 13
tierd_kill
tierd_start
expect_shown wild 1 13
train wild 1 0

"$TIERCTL" drop wild --yes >/dev/null
"$TIERCTL" drop calm --yes >/dev/null
timeout "$patience" "$program" refusals || fail 'see above'
expect_shown large 1 2
expect_shown used 4 2
tierd_stop
