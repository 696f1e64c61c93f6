#!/bin/sh
# What a trainer can do wrong once its job is ready; and a disk that is full when a job is created.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

used() {
	df --output=used "$nvme" | tail -n 1
}

everything_is_given_back() {
	[ "$(used)" -le "$before" ] && [ -z "$(find "$nvme" -name '*.store')" ]
}

tierd_start
"$program" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"

# The file system is smaller than the capacity that the daemon was told.
if mount -t tmpfs -o size=96M none "$nvme" 2>/dev/null; then
	trap 'status=$?; set +e; kill -KILL "$tierd_pid" 2>/dev/null; umount -l "$nvme"; (exit $status); clean_up' EXIT
	# To the state directory of before this would be a disk that is not mounted.
	tierd_start --state-dir "$scratch/other"
	before=$(used)
	"$program" full || fail 'see above'
	await everything_is_given_back || fail "$before KiB were used, now $(used)"
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
else
	echo 'the full disk is skipped: mounting is not allowed here'
fi
