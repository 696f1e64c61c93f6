#!/bin/sh
# A real disk of its own, ext4 on a loop device: it gets full, a file on it is cut off, and somebody still holds the lock of another. In a
# mount namespace of its own.
# shellcheck source=tests/functional/lib.sh disable=SC2119
if [ -z "${IN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	exec unshare --mount env IN_NAMESPACE=1 sh "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
gpt=$1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RESTART_COUNT
disk=$scratch/disk
holder=

run_gpt() {
	timeout "$patience" "$gpt" --layers 1 --width 32 --heads 2 --context 16 --batch 2 --threads 1 --log-every 0 \
		--data "$scratch/data" --ranks 1 "$@"
}

start() {
	: >"$tierd_log"
	tierd_start --nvme "$disk:1G"
}

stop() {
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
}

file_of() { # JOB
	find "$disk/tierd" -name "$1-*.store"
}

[ -n "${IN_NAMESPACE:-}" ] || skip 'mounting is not allowed here'
mkdir "$disk"
truncate -s 64M "$nvme/image"
mkfs.ext4 -q -m 0 "$nvme/image"
mount -o loop "$nvme/image" "$disk" 2>/dev/null || skip 'ext4 cannot be mounted here'
trap 'status=$?; set +e; kill -KILL $tierd_pid $holder 2>/dev/null; umount -l "$disk"; (exit $status); clean_up' EXIT
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"

# ---- Full

start
expect_status 0 run_gpt --steps 6 --job calm --dump "$scratch/calm"
"$TIERCTL" drop calm --yes
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
rm "$disk/ballast"
expect_status 0 run_gpt --steps 2 --job new
stop

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
stop

# ---- Locked, by whoever has not ended yet

is_stopped() {
	[ "$(cut -d ' ' -f 3 "/proc/$1/stat")" = T ]
}

has_open() {
	find "/proc/$tierd_pid/fd" -lname "$1" 2>/dev/null | grep -q .
}

expect_waiting() {
	! grep 'has locked it' "$tierd_log" || fail 'it does not wait for the lock'
}

# A process that has been stopped, as one is that was killed and whose writes are still on their way.
file=$(file_of kept)
# shellcheck disable=SC2016 # that shell's
sh -c 'exec 9<>"$1"; flock 9; kill -STOP $$' sh "$file" &
holder=$!
await is_stopped $holder || fail 'the holder has ended'
! flock -n "$file" true || fail 'nobody holds the lock'
tierd_launch --nvme "$disk:1G"
await has_open "$file" || fail 'tierd does not come to the file'
expect_waiting
! "$TIERCTL" ping >/dev/null 2>&1 || fail 'it listens before the job is back'
kill -KILL $holder
wait $holder || true
holder=
await tierd_answers || fail 'the daemon does not answer'
expect_waiting
expect_status 0 run_gpt --steps 7 --job kept --mode resume
stop
