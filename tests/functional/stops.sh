#!/bin/sh
# The daemon is told to end at requests of a job's life in turn, and at random moments, under trainers that reconnect: none of them ends,
# no applied step is lost, and the bits are those of a training that nobody disturbed.
# stops.sh GPT [SCENARIO CONFIGURATION ARGUMENT...]: all scenarios, or what a failure has named. $TIERD_STOPS_STRIDE and $TIERD_STOPS_MOMENTS: see stops.py.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"

SCRATCH=$scratch NVME=$nvme python3 "$(dirname "$0")/stops.py" "$@" || fail 'see above'
