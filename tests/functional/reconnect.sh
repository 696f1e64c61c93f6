#!/bin/sh
# Connections are cut and daemons killed and started again at every point of a training, and the library goes on or
# says what was lost.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1
timeout "$patience" "$program" "$scratch/state" || fail 'see above'
