#!/bin/sh
# Two ranks contend for units of a store that fails: who gathers gets an error that names the unit, never a wrong byte,
# never nothing at all; a write that fails breaks its job with a reason, and no other.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

run() {
	fault=$1
	shift
	tierd_start --fault "$fault"
	"$program" "$@" || fail "with the fault $fault, see above"
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status with the fault $fault"
	forget_jobs
}

for nth in 1 2 3; do
	run "complete:read:$nth:EIO" read 1 'Input/output error'
done
run complete:read:9:EIO read 0 'Input/output error'
run complete:read:1:EIO:lasting lasting 'Input/output error'
run submit:read:1:EIO read 1 'Input/output error'
run submit:read:2:EIO:lasting lasting 'Input/output error'
run corrupt:read:1 read 1 'checksum'
run corrupt:read:5 read 0 'checksum'
# A neighbour of the same unit has the same bytes.
run misdirect:read:2 read 0 'checksum'
run corrupt:read:1:lasting lasting 'checksum'
# What is written while the job is prepared is found when it is read.
# The first four are superblocks.
run corrupt:write:5 lasting 'checksum'
run lose:write:7 lasting 'checksum'
run complete:write:1:EIO survive
run complete:write:30:EIO survive
run submit:write:1:EIO survive
run submit:write:30:EIO survive
for fault in complete:write:5:EIO:lasting complete:write:8:EIO:lasting complete:write:40:ENOSPC:lasting \
	submit:write:20:EIO:lasting; do
	run "$fault" write
	grep -q 'job write of user [0-9]*: it is broken at step' "$tierd_log" || fail 'the log does not say that the job is broken'
done
# What is wrong on the disk is found by whoever reads it: an update, which breaks the job, or a gather.
run corrupt:write:50 write
