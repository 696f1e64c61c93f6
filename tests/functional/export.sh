#!/bin/sh
# Exports of a job that is trained, and of an idle one; disks that are full, folders that cannot be written, and signals.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1
command -v python3 >/dev/null || skip 'python3 is not installed'

export_all() {
	budget=$1
	shift
	tierd_start --host-budget "$budget"
	rm -rf "$nvme/out" "$scratch"/*.diary
	mkdir "$nvme/out"
	python3 "$(dirname "$0")/export.py" "$program" "$nvme/out" "$scratch" "$@" || fail 'see above'
	tierd_stop
	forget_jobs
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
}

export_all 768M
export_all 112M narrow
