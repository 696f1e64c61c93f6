#!/bin/sh
# A dynamic loss scale: what the daemon makes of overflows, and that it stays with the job.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
"$program" || fail 'see above'
"$TIERCTL" --json jobs >"$scratch/jobs" || fail 'tierctl jobs fails'
python3 - "$scratch/jobs" <<'END' || fail "tierctl jobs: $(cat "$scratch/jobs")"
import json, sys
job, = [job for job in json.load(open(sys.argv[1])) if job["name"] == "scaled"]
sys.exit(job["loss_scale"] != 64 or job["optimizer"] != "sgd")
END
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
