#!/bin/sh
# A real disk, ext4 on a loop device, that has become so slow that nothing arrives: a daemon is killed whose writes are on their way, the next
# one waits for the lock that they hold, finds the step that was durable, and the training goes on to the bits of any other.
# shellcheck source=tests/functional/lib.sh disable=SC2119
if [ -z "${IN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	exec unshare --mount env IN_NAMESPACE=1 sh "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/functional/ext4.sh
. "$(dirname "$0")/ext4.sh"
ext4_mount 64M
group=/sys/fs/cgroup/blkio/tierd-test-$$
mkdir "$group" 2>/dev/null || skip 'disks cannot be throttled here: only root can, where cgroup v1 has blkio'
# The group stays until its last process is gone.
trap 'status=$?; set +e; throttle 0; ext4_end; wait; rmdir "$group"; (exit $status); clean_up' EXIT
device=$(stat -c %Hd:%Ld "$disk")

throttle() { # BYTES per second; 0: any
	echo "$device $1" >"$group/blkio.throttle.write_bps_device"
}

# The kernel counts what is submitted, before it keeps it back.
is_writing() {
	kill -0 "$pids" || fail "gpt: $(cat "$scratch/out")"
	grep -q "^$device Write [1-9]" "$group/blkio.throttle.io_service_bytes"
}

start
expect_status 0 run_gpt --steps 8 --job calm --dump "$scratch/calm"
"$TIERCTL" drop calm --yes
expect_status 0 run_gpt --steps 4 --job slow
# A block takes more than an hour.
throttle 1
echo "$tierd_pid" >"$group/cgroup.procs"
TIERD_RECONNECT_MS=${patience}000 run_gpt --steps 8 --job slow --mode resume --dump "$scratch/slow" >"$scratch/out" 2>&1 &
pids=$!
await is_writing || fail 'nothing is written'
says_what_limits() {
	"$TIERCTL" status | grep -q '^limit *devices (.* busy)' && "$TIERCTL" --json status | grep -q '"limit":[^"]*"devices"'
}
await says_what_limits || fail "no disk limits it: $("$TIERCTL" status)"
[ "$(value_of slow durable_step)" -eq 4 ] || fail "a step is durable already: $("$TIERCTL" jobs)"
tierd_kill
# Writes to one of its files keep all of them locked, and this one is opened first.
launch_waiting "$(find "$nvme/tierd" -name 'slow-*.store')"
throttle 0
await tierd_answers || fail 'the daemon does not answer'
expect_patience
[ "$(value_of slow step)" -ge 4 ] || fail "step 4 was durable: $("$TIERCTL" jobs)"
wait "$pids" || fail "gpt: $(cat "$scratch/out")"
pids=
cmp "$scratch/calm" "$scratch/slow" || fail 'other bits on a slow disk'
tierd_stop
