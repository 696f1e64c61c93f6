#!/bin/sh
# A real disk of its own, ext4 on a loop device: it gets full, a file on it is cut off, and somebody still holds the lock of another. In a
# mount namespace of its own.
# shellcheck source=tests/functional/lib.sh disable=SC2119
if [ -z "${IN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	exec unshare --mount env IN_NAMESPACE=1 sh "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/functional/ext4.sh
. "$(dirname "$0")/ext4.sh"
ext4_mount 64M

# ---- Full

start
expect_status 0 run_gpt --steps 6 --job calm --dump "$scratch/calm"
expect_status 0 "$TIERCTL" drop calm --yes
expect_text 'calm is dropped'
expect_status 0 run_gpt --steps 2 --job kept
expect_status 1 run_gpt --steps 2 --job large --layers 8 --width 256
expect_text " in $disk, and "
expect_text 'are left on that disk'
# Nothing is left for anybody, and what was reserved is.
! dd if=/dev/zero of="$disk/ballast" bs=64K 2>/dev/null || fail 'the disk does not get full'
[ "$(df --output=avail -B1 "$disk" | tail -n 1)" -lt 1048576 ] || fail "the disk is not full: $(df "$disk")"
expect_status 0 run_gpt --steps 6 --job kept --mode resume --dump "$scratch/kept"
cmp "$scratch/calm" "$scratch/kept" || fail 'other bits on a full disk'
expect_status 1 run_gpt --steps 2 --job new
expect_text 'are left on that disk'
expect_status 1 "$TIERCTL" reserve kept 2
expect_text 'room for 2 snapshots of job kept needs '
expect_text " more in $disk, and "
expect_text ' are left on that disk; free some of it'
expect_status 1 "$TIERCTL" fork kept twin
expect_text 'what a fork of job kept may change needs '
expect_text " more in $disk, and "
expect_text ' are left on that disk; free some of it'
rm "$disk/ballast"
expect_status 0 run_gpt --steps 2 --job new
tierd_stop

# ---- Cut off

file=$(file_of new)
cp --sparse=always "$file" "$scratch/whole"
truncate -s 3M "$file"
start
expect_status 1 run_gpt --steps 3 --job new
expect_text 'job new cannot come back: '
expect_text 'was cut off'
expect_status 0 run_gpt --steps 6 --job kept --mode resume
# Back again, and nobody has to start the daemon for it.
cp --sparse=always "$scratch/whole" "$file"
expect_status 0 run_gpt --steps 3 --job new --mode resume
tierd_stop

# ---- Locked, by whoever has not ended yet

is_stopped() {
	[ "$(cut -d ' ' -f 3 "/proc/$1/stat")" = T ]
}

# A process that has been stopped, as one is that was killed and whose writes are still on their way.
file=$(file_of kept)
# shellcheck disable=SC2016 # that shell's
sh -c 'exec 9<>"$1"; flock 9; kill -STOP $$' sh "$file" &
pids=$!
await is_stopped "$pids" || fail 'the holder has ended'
launch_waiting "$file"
kill -KILL "$pids"
wait "$pids" || true
pids=
await tierd_answers || fail 'the daemon does not answer'
expect_patience
expect_status 0 run_gpt --steps 7 --job kept --mode resume
tierd_stop
