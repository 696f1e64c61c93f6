#!/bin/sh
# Jobs outlive the daemon, which ends in good order, is killed between commits that are seconds apart, or loses a device: they go on
# from the last durable step, to the same bits. What cannot be opened is told, and nothing of it is touched. Daemons that are
# killed at each write are those of kills.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"
gpt_flags='--layers 2 --width 64 --context 32 --loss-scale dynamic:1024 --ranks 2'
steps=400

is_beyond_or_ended() { # JOB STEP PID
	[ "$(value_of "$1" durable_step)" -gt "$2" ] || ! kill -0 "$3" 2>/dev/null
}

tierd_start
for job in calm wild; do
	expect_status 0 run_gpt --steps $steps --job $job --dump "$scratch/$job"
done
"$TIERCTL" --json blobs wild | tr -d '\t' >"$scratch/blobs"
[ "$(grep -c "\"step\":$steps\$" "$scratch/blobs")" -eq 2 ] || fail "no positions at the last step: $(cat "$scratch/blobs")"

# ---- Ended in good order, and gone on with later

# Within the warm-up, where the rates do not depend on the number of steps.
expect_status 0 run_gpt --steps 8 --job paused
# Another job, in files of its own.
expect_status 0 run_gpt --steps 2 --job Paused
tierd_stop
tierd_start
[ "$(value_of paused step)" -eq 8 ] || fail "steps are lost: $("$TIERCTL" jobs)"
[ "$(value_of Paused step)" -eq 2 ] || fail "a name in capitals is another one: $("$TIERCTL" jobs)"
expect_status 0 "$TIERCTL" drop Paused --yes
expect_status 0 run_gpt --steps $steps --job paused --mode resume --dump "$scratch/paused"
cmp "$scratch/calm" "$scratch/paused" || fail 'other bits after a clean end'

# ---- Killed where commits are seconds apart

tierd_stop
tierd_start --durability 1
# Looks at other text in between change no bit, and take long enough for a commit, however quick this machine is.
TIERD_RECONNECT_MS=60000 run_gpt --steps $steps --evaluate-every 1 --job seldom --dump "$scratch/seldom" >"$scratch/out" 2>&1 &
trainer=$!
await is_beyond_or_ended seldom 0 $trainer || fail "no step is durable: $("$TIERCTL" jobs)"
kill -0 $trainer || fail "gpt: $(cat "$scratch/out")"
tierd_kill
tierd_start --durability 1
wait $trainer || fail "gpt: $(cat "$scratch/out")"
cmp "$scratch/calm" "$scratch/seldom" || fail 'other bits where commits are seconds apart'

# ---- A device that fails: the job breaks, and goes on from its last durable step

tierd_stop
tierd_start --fault complete:write:400:EIO:lasting
expect_status 1 run_gpt --steps $steps --job broken
expect_text 'its last durable step is'
tierd_stop
tierd_start
expect_status 0 run_gpt --steps $steps --job broken --mode resume --dump "$scratch/broken"
cmp "$scratch/calm" "$scratch/broken" || fail 'other bits after a broken device'

# ---- A write of one that has come back fails once, and is told

tierd_stop
: >"$tierd_log"
# After the two superblocks of the opening.
tierd_start --fault complete:write:6:EIO
expect_status 0 run_gpt --steps $((steps + 5)) --job broken --mode resume
grep -q 'job broken of user [0-9]*: .* falling back to another place' "$tierd_log" || fail "the log says: $(cat "$tierd_log")"

# ---- What cannot be opened

file=$(find "$nvme" -name 'paused-*.store')
tierd_stop
cp --sparse=always "$file" "$scratch/paused.store"
for at in 0 262144; do
	dd if=/dev/zero of="$file" bs=4096 count=1 seek=$at oflag=seek_bytes conv=notrunc 2>/dev/null
done
cp --sparse=always "$file" "$scratch/spoilt.store"
: >"$tierd_log"
tierd_start
grep -q "job paused of user [0-9]*: its store .* cannot be opened: no copy of the superblock's first pair" "$tierd_log" ||
	fail "the log says: $(cat "$tierd_log")"
expect_status 1 run_gpt --steps $steps --job paused
expect_text 'job paused cannot come back: no copy of the superblock'
expect_text 'open the job with replace'
[ "$(value_of calm durable_step)" -eq $steps ] || fail 'another job has suffered'
tierd_stop
cmp "$file" "$scratch/spoilt.store" || fail 'what could not be opened was touched'
# A name alone takes nothing away: the later file is another job's.
calm=$(find "$nvme" -name 'calm-*.store') wild=$(find "$nvme" -name 'wild-*.store')
cp --sparse=always "$calm" "${wild%-*}-77.store"
: >"$tierd_log"
tierd_start
grep -q "job wild of user [0-9]*: .* is left as it is, because a later file of the job cannot be opened" "$tierd_log" ||
	fail "the log says: $(cat "$tierd_log")"
tierd_stop
rm "${wild%-*}-77.store"
tierd_start
[ "$(value_of wild durable_step)" -eq $steps ] || fail "a copied file has taken the job away: $(cat "$tierd_log")"
tierd_stop
# One copy of a pair is enough: the others are repaired from it.
cp --sparse=always "$scratch/paused.store" "$file"
dd if=/dev/zero of="$file" bs=4096 count=1 conv=notrunc 2>/dev/null
tierd_start
[ "$(value_of paused durable_step)" -eq $steps ] || fail "one copy is not enough: $(cat "$tierd_log")"
tierd_stop
dd if=/dev/urandom of="$file" bs=4096 count=1 seek=262144 oflag=seek_bytes conv=notrunc 2>/dev/null
tierd_start
[ "$(value_of paused durable_step)" -eq $steps ] || fail "the copies were not repaired: $(cat "$tierd_log")"
"$TIERCTL" drop paused --yes >/dev/null
tierd_stop
[ ! -e "$file" ] || fail 'a dropped job has left its file'
# Nor does one that could not be opened.
cp --sparse=always "$scratch/spoilt.store" "$file"
tierd_start
expect_status 1 "$TIERCTL" drop paused --yes
expect_text 'cannot be opened, and may have forks'
"$TIERCTL" drop paused --yes --lost >/dev/null
tierd_stop
[ ! -e "$file" ] || fail 'a dropped job that could not be opened has left its file'
