#!/bin/sh
# A timeline of what a job does, for Perfetto. trace.sh GPT USER_JOB
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

# Its default, the sources, may change meanwhile.
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"
tierd_start --durability step
TIERD_PID=$tierd_pid FOLDER=$scratch python3 "$(dirname "$0")/trace.py" "$@" || fail 'see above'
tierd_stop
