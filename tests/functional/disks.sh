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
trap 'status=$?; set +e; [ -z "$tierd_pid" ] || kill -KILL "$tierd_pid"; umount -l "$disk"; (exit $status); clean_up' EXIT
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

is_locked() {
	! flock -n "$1" true
}

has_open() {
	find "/proc/$tierd_pid/fd" -lname "$1" 2>/dev/null | grep -q .
}

file=$(file_of kept)
mkfifo "$scratch/end"
flock "$file" cat "$scratch/end" &
holder=$!
await is_locked "$file" || fail 'flock does not lock it'
tierd_launch --nvme "$disk:1G"
await has_open "$file" || fail 'tierd does not come to the file'
! "$TIERCTL" ping >/dev/null 2>&1 || fail 'it listens before the job is back'
echo >"$scratch/end"
wait $holder
await tierd_answers || fail 'the daemon does not answer'
expect_status 0 run_gpt --steps 7 --job kept --mode resume
stop
