#!/bin/sh
# The file of a running job is removed: within seconds that is told and shown, no step is called durable from then on, and the job
# goes on, so that its state can be exported.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/functional/disks_lib.sh
. "$(dirname "$0")/disks_lib.sh"

is_logged() { # TEXT
	grep -q "$1" "$tierd_log"
}

expect_removed() { # JOB FILE
	await is_logged "job $1 of user [0-9]*: its store $2 has been removed: no step is durable any more" ||
		fail "the log says: $(cat "$tierd_log")"
	expect_status 0 "$TIERCTL" jobs "$1"
	expect_text 'its store is removed'
	expect_text "its store $2 has been removed"
	expect_text "export it before (tierctl export $1)"
	[ "$(value_of "$1" durable_step)" -eq -1 ] || fail "a step is durable: $("$TIERCTL" jobs)"
	"$TIERCTL" --json jobs | grep -q "\"removed\":.*$2" || fail "$("$TIERCTL" --json jobs)"
}

# ---- Of an idle job

mount_disk disk one
mount_disk second two
start one two
expect_status 0 run_gpt --steps 4 --job idle
expect_status 0 run_gpt --steps 4 --job moved
expect_status 0 run_gpt --steps 4 --job other
file=$(file_of idle | grep /two/)
rm "$file"
expect_removed idle "$file"
expect_status 0 "$TIERCTL" export idle --output "$scratch/idle.safetensors"
expect_status 0 "$TIERCTL" export other --output "$scratch/other.safetensors"
# Behind the names of the jobs.
for job in idle other; do
	tail -c 40000 "$scratch/$job.safetensors" >"$scratch/$job"
done
cmp "$scratch/idle" "$scratch/other" || fail 'what was exported is not what was trained'
[ "$(value_of other durable_step)" -eq 4 ] || fail "another job: $("$TIERCTL" jobs)"

# It is not durable anywhere.
json '[job["durable_step"] or 0 for job in j["jobs"] if job["name"] in ("idle", "other")] == [0, 4]' top --once --interval 0.1

for command in 'fork idle again' 'snapshot idle mark'; do
	# shellcheck disable=SC2086
	expect_status 1 "$TIERCTL" $command
	expect_text "its store $file has been removed"
done

# ---- One that is called otherwise for a while

file=$(file_of moved | grep /one/)
mv "$file" "$nvme/elsewhere"
expect_removed moved "$file"
mv "$nvme/elsewhere" "$file"
await is_logged 'job moved of user [0-9]*: its store .* is back in its place' || fail "the log says: $(cat "$tierd_log")"
has_value moved durable_step 4 || fail "not durable: $("$TIERCTL" jobs)"
# Another file is not it.
mv "$file" "$nvme/elsewhere"
cp --sparse=always "$nvme/elsewhere" "$file"
: >"$tierd_log"
expect_status 1 run_gpt --steps 5 --job moved --mode resume
expect_text "its store $file has been removed: no step is durable any more"
mv "$nvme/elsewhere" "$file"

# ---- Of one that is trained, and goes on

run_gpt --steps 1000000 --job trained >"$scratch/out" 2>&1 &
trainer=$!
await_training trained $trainer
file=$(file_of trained | grep /one/)
rm "$file"
expect_removed trained "$file"
step=$(value_of trained step)
goes_on() {
	[ "$(value_of trained step)" -gt "$step" ]
}
await goes_on || fail "it does not go on: $("$TIERCTL" jobs trained)"
kill -TERM $trainer
wait $trainer || true
! sed '1,/its store .*trained/d' "$tierd_log" | grep 'job trained .* is durable' || fail 'a step is called durable'

# ---- The next daemon

tierd_stop
start one two
for job in idle trained; do
	expect_broken $job 'is not there: somebody has removed it'
done
expect_resumed moved 6
expect_resumed other 6
tierd_stop
