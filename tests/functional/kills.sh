#!/bin/sh
# The daemon is killed at each write and each flush of a job's life in turn: the trainer goes on, to the same bits. Or of a job's
# replacement: the old one is there, or the new one.
# kills.sh GPT [SCENARIO FAULT...]: all scenarios, or what a failure has named. Of most writes $TIERD_KILLS_STRIDE takes another share: 1 is all.
# $TIERD_KILLS_FLAGS: of the trainer, as where its state lies. $TIERD_KILLS_DAEMON: of the daemon.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"

SCRATCH=$scratch NVME=$nvme python3 "$(dirname "$0")/kills.py" "$@" || fail 'see above'
