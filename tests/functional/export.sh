#!/bin/sh
# Exports of a job that is trained, kept on its devices or in memory, and of an idle one; disks that are full, folders that cannot be
# written, signals, and daemons that are killed.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

play() { # WHAT
	python3 "$(dirname "$0")/export.py" "$program" "$nvme/out" "$scratch" "$1" || fail "$1: see above"
}

begin() { # BUDGET
	tierd_start --host-budget "$1"
	export TIERD_PID="$tierd_pid"
	rm -rf "$nvme/out" "$scratch"/*.diary
	mkdir "$nvme/out"
}

end() {
	tierd_stop
	forget_jobs
}

export_all() { # BUDGET WHAT
	begin "$1"
	play "$2"
	end
}

export_all 768M wide
export_all 112M narrow
export_all 124M kept
begin 124M
play before_a_kill
wait "$tierd_pid" 2>/dev/null || true
tierd_start --host-budget 124M
play after_a_kill
end
