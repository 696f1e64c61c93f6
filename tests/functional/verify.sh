#!/bin/sh
# tierctl verify, of jobs that are idle, released, trained, restored and lost: each byte that is spoilt on the disk is found, and
# named, and no other.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

verify() { # STAGE
	result=0
	NVME=$nvme TIERD_LOG=$tierd_log python3 "$(dirname "$0")/verify.py" "$program" "$scratch" "$1" || result=$?
	[ "$result" -ne 77 ] || skip 'there is no libxxhash to load'
	[ "$result" -eq 0 ] || fail "$1: see above"
}

tierd_start --host-budget 512M
verify idle
verify scrubbed
verify trained
tierd_stop
tierd_start --host-budget 512M
verify restored
verify ended
tierd_stop
tierd_start --host-budget 512M
verify kept
tierd_stop
verify spoil
tierd_start --host-budget 512M
verify lost
tierd_stop
verify spoil
tierd_start --host-budget 512M
verify back
tierd_stop
verify spoil
tierd_start --host-budget 512M
verify given_up
tierd_stop
verify reformat
tierd_start --host-budget 512M
verify refused
tierd_stop
verify untouched
tierd_start --host-budget 512M
verify understood
tierd_stop
forget_jobs
tierd_start --host-budget 512M --idle-release-seconds 1
verify released
file=$(find "$nvme" -name 'released-*.store')
tierd_stop
for at in 0 262144; do
	dd if=/dev/zero of="$file" bs=4096 count=1 seek=$at oflag=seek_bytes conv=notrunc 2>/dev/null
done
tierd_start
expect_status 1 "$TIERCTL" verify released
expect_text "job released cannot be read: no copy of the superblock's first pair"
expect_status 1 "$TIERCTL" verify nobody
expect_text 'there is no job nobody'
expect_status 2 "$TIERCTL" verify
tierd_stop
