#!/bin/sh
# Jobs whose ranks and whose daemon die at random, while users ask tierctl for everything at once: each answer comes, and is right,
# and in the end each job goes on, with the values of its step. chaos.sh PROGRAM SECONDS SEED…
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT

program=$1 seconds=$2
shift 2
for seed in "$@"; do
	mkdir "$scratch/$seed" "$nvme/$seed"
	SCRATCH=$scratch/$seed NVME=$nvme/$seed python3 "$(dirname "$0")/chaos.py" "$program" "$seconds" "$seed" ||
		fail "seed $seed: see above"
done
