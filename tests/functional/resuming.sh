#!/bin/sh
# Which options may differ between a job and who resumes it; and memory that it is given so is there, also after a kill.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
expect_budget() {
	"$TIERCTL" --json jobs >"$scratch/jobs"
	grep -q '"job_host_budget":[[:space:]]*100663296' "$scratch/jobs" || fail "another budget: $(cat "$scratch/jobs")"
}

tierd_start
timeout "$patience" "$program" differ || fail 'see above'
tierd_kill
tierd_start
expect_budget
timeout "$patience" "$program" kept || fail 'see above'
expect_budget
tierd_stop
