#!/bin/sh
# Jobs of very many small units and tensors. With $COUNT = 100000 units and $TENSORS = 1000000 tensors, the most that a
# job may have, it meets the message of one too many, and takes half a minute and 4 GiB ($BUDGET).
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

mkdir "$nvme/two" "$nvme/three" "$nvme/four"
tierd_start --host-budget "${BUDGET:-512M}" --nvme "$nvme/two:1G" --nvme "$nvme/three:1G" --nvme "$nvme/four:1G"
# A frozen tensor is initialized by itself, with a turn of the loop and of a worker.
for what in "units ${COUNT:-4000} 1 3" "units ${COUNT:-4000} 2 1" "tensors ${TENSORS:-40000} 0" "tensors 4000 1"; do
	# shellcheck disable=SC2086 # several words
	"$program" $what || fail "limits $what"
done
tierd_stop
