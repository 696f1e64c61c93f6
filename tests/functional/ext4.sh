# shellcheck shell=sh
# Sourced after lib.sh by tests that have a disk of their own, in a mount namespace that it ends with: they start themselves again in one.
#
#   ext4_mount BYTES      $disk is ext4 on a loop device, with something to train on in $scratch/data
#   ext4_end              ends what is in $tierd_pid and $pids, and the disk; what an EXIT trap has to call first
#   start [FLAG…]         a daemon that has $disk as its second path
#   launch_waiting FILE   launches one that finds FILE locked: sees that it waits for that, and neither answers nor complains
#   file_of JOB           the file of its store there
use_gpt "$1"
disk=$scratch/disk
pids=

ext4_end() {
	# shellcheck disable=SC2086 # as many as there are
	kill -KILL $tierd_pid $pids 2>/dev/null
	umount -l "$disk"
}

ext4_mount() { # BYTES
	[ -n "${IN_NAMESPACE:-}" ] || skip 'mounting is not allowed here'
	mkdir "$disk"
	truncate -s "$1" "$nvme/image"
	mkfs.ext4 -q -m 0 "$nvme/image"
	mount -o loop "$nvme/image" "$disk" 2>/dev/null || skip 'ext4 cannot be mounted here'
	trap 'status=$?; set +e; ext4_end; (exit $status); clean_up' EXIT
}

start() {
	: >"$tierd_log"
	tierd_start --nvme "$disk:1G" "$@"
}

file_of() { # JOB
	find "$disk/tierd" -name "$1-*.store"
}

expect_patience() {
	! grep 'has locked it' "$tierd_log" || fail 'it does not wait for the lock'
}

has_open() { # FILE
	expect_patience
	find "/proc/$tierd_pid/fd" -lname "$1" 2>/dev/null | grep -q .
}

launch_waiting() { # FILE
	! flock -n "$1" true || fail "nobody holds the lock of $1"
	: >"$tierd_log"
	tierd_launch --nvme "$disk:1G"
	await has_open "$1" || fail 'tierd does not come to the file'
	! "$TIERCTL" ping >/dev/null 2>&1 || fail 'it listens before the job is back'
}
