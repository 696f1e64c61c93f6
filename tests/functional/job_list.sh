#!/bin/sh
# The list of jobs in the state directory: an older copy of a disk is told from the disk, and what becomes of a list that is
# damaged, or of a later tierd's, or that cannot be written.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/functional/disks_lib.sh
. "$(dirname "$0")/disks_lib.sh"
list=$scratch/state/jobs

put_bytes() { # OFFSET BYTE
	printf '%b' "$2" | dd of="$list" bs=1 seek="$1" conv=notrunc 2>/dev/null
}

is_gone() { # JOB
	[ -z "$(file_of "$1")" ]
}

# ---- An older copy of a disk

mount_disk disk one
start one
expect_status 0 run_gpt --steps 3 --job gpt
tierd_stop
cp -a --sparse=always "$nvme/one" "$nvme/older"
start one
expect_status 0 run_gpt --steps 5 --job gpt --mode resume
tierd_stop
mv "$nvme/one" "$nvme/newer"
mv "$nvme/older" "$nvme/one"
for _ in 1 2; do
	start one
	expect_broken gpt 'is an older copy, of '
	expect_text 'bring back the newer one'
	expect_status 0 "$TIERCTL" jobs gpt
	expect_text 'remedy: bring back the newer copy of the disk, and open it again, or start tierd again'
	tierd_stop
done
mv "$nvme/one" "$nvme/older"
mv "$nvme/newer" "$nvme/one"
start one
expect_resumed gpt 6
tierd_stop
# Whoever wants that one says so.
mv "$nvme/one" "$nvme/newer"
mv "$nvme/older" "$nvme/one"
mv "$list" "$scratch/list"
start one
[ "$(value_of gpt step)" -eq 3 ] || fail "not the older one: $("$TIERCTL" jobs)"
expect_resumed gpt 4
tierd_stop

# ---- What an older tierd has left: neither a list nor a mark

rm "$list" "$nvme/one/tierd/mark"
start one
tierd_stop
unmount_disk one disk
start one
expect_broken gpt 'is not mounted'
tierd_stop
mount_disk disk one

# ---- A list that is damaged

put_bytes 30 '\377\001'
cp "$list" "$scratch/damaged"
start one
expect_log "the list of jobs, $list, is damaged: it is called jobs.damaged now"
cmp "$list.damaged" "$scratch/damaged" || fail 'what was damaged is not kept as it was'
expect_resumed gpt 5
tierd_stop
# The new one misses it.
put_bytes 20 '\377\001'
start one
expect_log 'it is called jobs.damaged-2 now'
cmp "$list.damaged" "$scratch/damaged" || fail 'what was damaged first is not kept'
tierd_stop
unmount_disk one disk
start one
expect_broken gpt 'is not mounted'
tierd_stop
mount_disk disk one

# ---- A path that is a copy of another one

cp -a --sparse=always "$nvme/one" "$nvme/two"
find "$nvme/two" -name '*.store' -delete
start one two
expect_log "$nvme/two/tierd/mark is that of another path, of which it is a copy: it gets a new one"
expect_status 0 run_gpt --steps 2 --job both
tierd_stop
unmount_disk two disk
start one two
expect_not_mounted both two
"$TIERCTL" drop both --yes --lost >/dev/null
tierd_stop
rm -r "$nvme/two" "$nvme/disk"

# ---- One of a later tierd

python3 "$(dirname "$0")/job_list.py" "$list" || [ $? -eq 77 ] || fail 'no list of a later tierd'
cp "$list" "$scratch/later"
launch one
tierd_status=0
wait "$tierd_pid" || tierd_status=$?
tierd_pid=
[ "$tierd_status" -eq 1 ] || fail "exit status $tierd_status"
expect_log "the list of jobs, $list, was written by a later tierd: start that one; or"
cmp "$list" "$scratch/later" || fail 'it was touched'
mv "$list" "$scratch/later"
start one
expect_resumed gpt 6

# ---- One that cannot be written

# The list is written before a file goes.
await is_gone calm-6 || fail "it is left: $(file_of calm-6)"
rm "$list"
mkdir "$list"
expect_status 1 run_gpt --steps 2 --job new
expect_text "it cannot be written to the list of jobs, $list: Is a directory; make room there, or make it writable"
expect_log "the list of jobs cannot be written to $list: Is a directory"
await is_gone new || fail "its file is left: $(file_of new)"
expect_status 0 run_gpt --steps 7 --job gpt --mode resume
rmdir "$list"
expect_status 0 run_gpt --steps 2 --job new
tierd_stop
unmount_disk one disk
start one
expect_broken new 'is not mounted'
tierd_stop
