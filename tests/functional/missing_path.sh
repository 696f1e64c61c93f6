#!/bin/sh
# The state of a job lies on two paths, whatever other ones there are, and in whatever order. One of them comes back empty: the job
# is there, broken, and says which path lacks what. Nothing of it is touched, until the path is back, or until the job is replaced or
# dropped.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"
two=$nvme/two three=$nvme/three
mkdir "$two" "$three"

start_two() {
	: >"$tierd_log"
	tierd_start --nvme "$two:1G"
}

start_three() {
	: >"$tierd_log"
	tierd_start --nvme "$three:1G" --nvme "$two:1G"
}

gpt_flags='--ranks 2'

files_of() { # JOB
	find "$nvme" -path '*/tierd/*' -name "$1-*.store"
}

empty_path() {
	mv "$two/tierd" "$scratch/away"
}

expect_broken() { # JOB
	expect_status 0 "$TIERCTL" jobs "$1"
	expect_text broken
	"$TIERCTL" --json jobs | grep -q "\"$two/tierd/[0-9]*/$1-[0-9]*.store is not there: that path is not mounted;" ||
		fail "the path is not named: $("$TIERCTL" --json jobs)"
	# What nobody knows is not made up, and what is to be done is said.
	expect_text 'remedy: mount the path, or put the file back'
	json 'all(j[key] is None for key in ("world_size", "stage", "step", "units", "parameters", "optimizer", "nvme_bytes"))' jobs "$1"
	json 'j["is_durable"] and j["remedy"]' jobs "$1"
	json "[job['status'] for job in j['jobs'] if job['name'] == '$1' and job['step'] is job['durable_step'] is job['nvme_bytes'] is None] == \
		['broken']" top --once --interval 0.1
	! "$TIERCTL" metrics | grep 'tierd_job_nvme_bytes{.*"'"$1"'"' || fail 'metrics make values up'
	expect_status 0 "$TIERCTL" jobs
	[ "$(echo "$output" | awk -v job="$1" '$1 == job { print $7, $8, $9 }')" = '- - -' ] || fail "values are made up: $output"
	grep -q "job $1 of user [0-9]*: its store .*$1-[0-9]*.store cannot be opened: $two/tierd/" "$tierd_log" ||
		fail "the log says: $(cat "$tierd_log")"
}

start_two
for job in back replaced dropped; do
	expect_status 0 run_gpt --steps 3 --job $job
done
tierd_stop
[ "$(files_of back | wc -l)" -eq 2 ] || fail "not on two paths: $(files_of back)"
empty_path
cp "$(files_of back)" "$scratch/before"

# ---- Whoever opens it does not begin anew

start_two
for job in back replaced dropped; do
	expect_broken $job
	expect_status 1 run_gpt --steps 4 --job $job
	expect_text "job $job cannot come back: $two/tierd/"
	expect_text 'mount it and start tierd again, or give the job up'
	expect_status 1 run_gpt --steps 4 --job $job --mode create
	expect_status 1 run_gpt --steps 4 --job $job --mode resume
done
tierd_kill
start_two
expect_broken back
tierd_stop
cmp "$(files_of back)" "$scratch/before" || fail 'what is left of it was touched'

# ---- Replaced, or dropped

start_two
# Not by one that never comes to have a state.
expect_status 1 run_gpt --steps 2 --job replaced --mode replace --host-budget 1K
is_broken() {
	"$TIERCTL" jobs "$1" 2>/dev/null | grep -q broken
}
await is_broken replaced || fail "what was not replaced is not there: $("$TIERCTL" jobs)"
[ "$(files_of replaced | wc -l)" -eq 1 ] || fail "what was not replaced: $(files_of replaced)"
expect_status 0 run_gpt --steps 2 --job replaced --mode replace
"$TIERCTL" --json drop dropped --yes --lost | grep -q '"step":[[:space:]]*null' || fail 'a step is made up'
tierd_stop
# The new one is not where the disk was. What could not be read is nobody's to remove: there may be more in it.
[ "$(files_of replaced | wc -l)" -eq 2 ] || fail "after it was replaced: $(files_of replaced)"
[ -z "$(files_of dropped)" ] || fail "after it was dropped: $(files_of dropped)"

# ---- Brought back

for file in "$scratch"/away/*/back-*.store; do
	mkdir "$two/tierd/$(basename "$(dirname "$file")")"
	cp --sparse=always "$file" "$two/tierd/$(basename "$(dirname "$file")")"
done
start_two
expect_status 0 run_gpt --steps 4 --job back --mode resume
expect_status 0 run_gpt --steps 4 --job replaced --mode resume
"$TIERCTL" --json jobs | grep -q '"broken"' && fail "still broken: $("$TIERCTL" jobs)"
[ "$("$TIERCTL" --json jobs | grep -c '"step":[[:space:]]*4,')" -eq 2 ] || fail "steps are lost: $("$TIERCTL" --json jobs)"
tierd_stop

# ---- Paths in another order

expect_same() { # STEPS
	expect_status 0 run_gpt --steps "$1" --job calm --mode replace --dump "$scratch/calm"
	expect_status 0 run_gpt --steps "$1" --job back --mode resume --dump "$scratch/back"
	cmp "$scratch/calm" "$scratch/back" || fail 'other bits'
}

mv "$nvme/tierd" "$scratch/first"
mv "$two/tierd" "$nvme/tierd"
mv "$scratch/first" "$two/tierd"
start_two
expect_same 5

# ---- Another path

tierd_stop
start_three
json "[p['used_bytes'] for p in j['nvme'] if p['path'] == '$three'] == [0]" tiers
expect_status 0 run_gpt --steps 6 --job back --mode resume
[ "$(files_of back | wc -l)" -eq 2 ] || fail "it has spread: $(files_of back)"
expect_status 0 run_gpt --steps 2 --job new
[ "$(files_of new | wc -l)" -eq 3 ] || fail "not on three paths: $(files_of new)"
json "[p['used_bytes'] > 0 for p in j['nvme'] if p['path'] == '$three'] == [True]" tiers
tierd_stop
start_three
expect_same 7
expect_status 0 run_gpt --steps 3 --job new --mode resume
tierd_stop

# ---- One too many

file=$(find "$two/tierd" -name 'back-*.store')
user=$(basename "$(dirname "$file")")
cp --sparse=always "$file" "$three/tierd/$user"
start_three
expect_status 1 run_gpt --steps 8 --job back
expect_text 'is one file too many: its store has 2 devices, and each is there'
# The other rank may have it tried once more.
await is_broken back
expect_status 0 "$TIERCTL" jobs
expect_text 'broken for '
! echo "$output" | grep -q 'broken for.*state in host memory' || fail "nothing of it is in host memory: $output"
tierd_stop
rm "$three/tierd/$user/$(basename "$file")"

# ---- Two of one name and number: of another machine, say, whose disks have come here

back=$user/$(basename "$file") here=$nvme
mkdir "$scratch/other" "$three/other"
nvme=$three/other
mv "$scratch/state" "$scratch/state-here"
tierd_start
expect_status 0 run_gpt --steps 2 --job back
tierd_stop
rm -r "$scratch/state"
mv "$scratch/state-here" "$scratch/state"
nvme=$here
mv "$three/other/tierd/$back" "$three/tierd/$user/" || fail "of another number: $(files_of back)"
rm -r "$three/other"
start_three
# Where the tree lies deep a path is told by its end.
for words in 'two jobs of one name and number' "the file $back in " "${nvme##*/}/tierd, " "${nvme##*/}/two/tierd is of one store" \
	"${nvme##*/}/three/tierd of another" 'move one of them elsewhere' 'destroys the state of both'; do
	expect_status 1 run_gpt --steps 8 --job back
	expect_text "$words"
done
# Which of them is meant is said by taking the other one away; nothing was touched of either.
tierd_stop
mv "$three/tierd/$back" "$scratch/other/three"
start_three
expect_status 0 run_gpt --steps 9 --job back --mode resume
tierd_stop
mv "$two/tierd/$back" "$scratch/other/two"
mv "$nvme/tierd/$back" "$scratch/other/one"
mv "$scratch/other/three" "$three/tierd/$back"
start_three
expect_status 1 run_gpt --steps 3 --job back --mode resume
expect_text "$three/tierd/$back is of another job, of the same name and number"
tierd_stop
# Without the list nobody knows which one it was.
rm "$scratch/state/jobs"
start_three
expect_status 0 run_gpt --steps 3 --job back --mode resume
tierd_stop
rm "$scratch/state/jobs"
rm "$three/tierd/$back"
mv "$scratch/other/two" "$two/tierd/$back"
mv "$scratch/other/one" "$nvme/tierd/$back"

# ---- One too few

start_two
expect_status 1 run_gpt --steps 8 --job new
expect_text 'its store lies on 3 paths, and 2 are configured'
expect_status 0 run_gpt --steps 8 --job back --mode resume
tierd_stop
