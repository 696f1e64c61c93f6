#!/bin/sh
# Disks that are not mounted when the daemon starts, in part, or elsewhere, and files that somebody has removed: no job begins anew
# without knowing, and all is as it was when what is missing is back.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/functional/disks_lib.sh
. "$(dirname "$0")/disks_lib.sh"

# ---- The only disk is not mounted

mount_disk disk one
start one
expect_status 0 run_gpt --steps 3 --job gpt
"$TIERCTL" fork gpt twin >/dev/null
tierd_stop
unmount_disk one disk
for _ in 1 2; do
	start one
	expect_log "NVMe path $nvme/one: nothing of tierd is there, .* mount it, and start tierd again"
	for job in gpt twin; do
		expect_not_mounted $job one
	done
	expect_status 0 "$TIERCTL" tiers
	expect_text "$nvme/one (not mounted)"
	expect_status 1 "$TIERCTL" doctor --quick
	expect_text "$nvme/one: jobs lie on the file system that was there, and it is not mounted"
	# Nothing new is put where the disk is to be.
	for job in 'new --mode create' 'gpt --mode replace'; do
		# shellcheck disable=SC2086 # they are several words
		expect_status 1 run_gpt --steps 2 --job $job
		expect_text "the NVMe path $nvme/one is not mounted: mount it, and start tierd again"
	done
	tierd_stop
	[ -z "$(find "$nvme/one" -type f)" ] || fail "left where the disk is to be: $(find "$nvme/one")"
done
mount_disk disk one
start one
expect_resumed gpt 5
expect_resumed twin 5

# ---- Nor is a job unknown whose daemon was killed after its first step

expect_status 0 run_gpt --steps 1 --job young
tierd_kill
unmount_disk one disk
start one
expect_not_mounted young one
tierd_stop
mount_disk disk one
start one
"$TIERCTL" drop young --yes >/dev/null

# ---- Its file is removed while no daemon runs

tierd_stop
file=$(find "$nvme/one" -name 'gpt-*.store')
mv "$file" "$scratch/removed"
start one
expect_broken gpt "$file is not there: somebody has removed it; put it back and open the job again"
expect_broken twin "$file is not there: somebody has removed it"
# Others have their paths.
expect_status 0 run_gpt --steps 2 --job other
# And nobody has to start the daemon for it.
cp --sparse=always "$scratch/removed" "$file"
expect_status 0 run_gpt --steps 6 --job gpt --mode resume
expect_resumed twin 6
"$TIERCTL" drop twin --yes >/dev/null

# ---- Given up

tierd_stop
rm "$(find "$nvme/one" -name 'gpt-*.store')"
start one
expect_status 1 "$TIERCTL" drop gpt --yes --force
expect_text 'drop --lost destroys all that is left of it'
expect_status 0 "$TIERCTL" drop gpt --yes --lost
expect_status 1 run_gpt --steps 2 --job gpt --mode resume
expect_status 0 run_gpt --steps 2 --job gpt --mode create
tierd_stop
start one
[ "$(value_of gpt step)" -eq 2 ] || fail "after it was given up: $("$TIERCTL" jobs)"
"$TIERCTL" drop gpt --yes >/dev/null
"$TIERCTL" drop other --yes >/dev/null
tierd_stop

# ---- One of two is missing

mount_disk second two
start one two
for job in pair apart; do
	expect_status 0 run_gpt --steps 3 --job $job
done
[ "$(file_of pair | wc -l)" -eq 2 ] || fail "not on two paths: $(file_of pair)"
tierd_stop
unmount_disk two disk
cp "$(file_of pair | grep /one/)" "$scratch/before"
start one two
for job in pair apart; do
	expect_not_mounted $job two
done
# What is new lies on the other one.
expect_status 0 run_gpt --steps 2 --job single
[ "$(file_of single)" = "$(file_of single | grep /one/)" ] || fail "where a disk is to be: $(file_of single)"
expect_status 0 "$TIERCTL" drop apart --yes --lost
tierd_stop
cmp "$(file_of pair | grep /one/)" "$scratch/before" || fail 'what is left of it was touched'
# It is not configured at all.
start one
expect_broken pair 'that path is not configured any more; configure it and start tierd again'
tierd_stop
mount_disk disk two
start one two
expect_resumed pair 5
expect_resumed single 5
# What was given up while it was away has gone.
[ -z "$(file_of apart)" ] || fail "it was given up: $(file_of apart)"
expect_status 1 "$TIERCTL" jobs apart
tierd_stop

# ---- Two disks are swapped

unmount_disk one disk
unmount_disk two second
mount_disk second one
mount_disk disk two
start one two
for job in pair single; do
	expect_resumed $job 7
done
tierd_stop
# And each is missed where it was last.
unmount_disk two disk
start one two
expect_not_mounted single two
tierd_stop

# ---- Another disk is there instead, with jobs of its own

mount_disk third three
mv "$scratch/state" "$scratch/state-here"
start three
expect_status 0 run_gpt --steps 2 --job foreign
tierd_stop
rm -r "$scratch/state"
mv "$scratch/state-here" "$scratch/state"
mv "$nvme/three" "$nvme/third"
mount_disk third two
start one two
expect_not_mounted single two
expect_status 0 run_gpt --steps 3 --job foreign --mode resume
tierd_stop

# ---- An empty disk takes the place of one that is lost

unmount_disk two third
start one two
for job in pair single foreign; do
	expect_broken $job "is not mounted"
	expect_status 0 "$TIERCTL" drop $job --yes --lost
done
tierd_stop
start one two
! grep 'nothing of tierd is there' "$tierd_log" || fail 'nobody misses that disk any more'
expect_status 0 run_gpt --steps 2 --job fresh
[ "$(file_of fresh | wc -l)" -eq 2 ] || fail "not on both paths: $(file_of fresh)"
tierd_stop
