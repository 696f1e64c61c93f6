#!/bin/sh
# Daemons that are killed while they write what they keep in memory between commits, and readers that have it written: the bits of
# each step that is back are those of plain memory, and training goes on to the same ones.
# kept_kills.sh PROGRAM [MOMENTS STAGE FAULT PLACE STRIDE]: all, or what a failure has named. $TIERD_KILLS_SEEDS: lives of each format and stage.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

SCRATCH=$scratch NVME=$nvme python3 "$(dirname "$0")/kept_kills.py" "$@" || fail 'see above'
