#!/bin/sh
# How often a job's steps become durable, and what makes them so before their time: waiting for one, closing, draining, the
# end of the daemon. Nothing else does.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
long=86400

expect_value() { # JOB KEY VALUE
	has_value "$@" || fail "$2 of $1 is $(value_of "$1" "$2"), not $3"
}

# A rank that has taken its steps, and stays until leave; JOB DURABILITY
stay() {
	mkfifo "$scratch/in" "$scratch/out"
	"$program" stay "$1" "$2" <"$scratch/in" >"$scratch/out" &
	rank=$!
	exec 7>"$scratch/in" 8<"$scratch/out"
	read -r _ <&8 || fail "no rank of $1"
}

leave() {
	echo >&7
	exec 7>&- 8<&-
	rm "$scratch/in" "$scratch/out"
	wait $rank || fail "the rank ends with $?"
}

# ---- Who waits, and who closes

tierd_start
expect_status 0 "$program" many many $long
expect_status 0 "$program" early early $long
expect_status 0 "$program" close closed $long
for job in early closed; do
	expect_value $job durable_step 5
	expect_value $job durable_lag 0
	expect_value $job durability $long
done

# ---- Nobody waits: steps are applied, and a kill loses them

stay alone $long
expect_value alone step 5
expect_value alone durable_step 0
expect_value alone durable_lag 5
"$TIERCTL" jobs | grep -q '0 (-5, ' || fail "no lag: $("$TIERCTL" jobs)"
"$TIERCTL" metrics | grep -q 'tierd_job_durable_lag_steps{.*job="alone"} 5' || fail "$("$TIERCTL" metrics)"
tierd_kill
tierd_start
leave
expect_value alone step 0
for job in early closed; do
	expect_value $job step 5
done
expect_value many step 1300

# ---- Its time comes

stay soon 1
await_durable soon 5
leave

# ---- Whoever drains, or ends the daemon, loses nothing

stay drained $long
"$TIERCTL" drain --timeout 0 >/dev/null || true
await_durable drained 5
tierd_kill
tierd_start
leave
expect_value drained step 5
stay ended $long
expect_value ended durable_step 0
tierd_stop
tierd_start
leave
expect_value ended step 5

# ---- A rank that dies leaves what it has taken

stay dead $long
kill -KILL $rank
await_durable dead 5
exec 7>&- 8<&-
rm "$scratch/in" "$scratch/out"

# ---- None

expect_status 0 "$program" none fleeting none
expect_value fleeting is_durable False
expect_value fleeting durability none
[ -z "$(find "$nvme" -name 'fleeting-*.store' -perm -0600 ! -perm -1000)" ] || fail 'a file that is to stay'
tierd_stop
[ -z "$(find "$nvme" -name 'fleeting-*')" ] || fail 'its file stays'

# ---- The configuration's word, for who has none

tierd_start --durability $long
stay usual 0
expect_value usual durability $long
expect_value usual durable_step 0
tierd_stop
tierd_start --durability none
leave
expect_value usual durability $long
expect_value usual step 5
expect_status 0 "$program" none fleeting 0
expect_value fleeting is_durable False
tierd_stop
expect_status 2 "$TIERD" --durability 86401
expect_text "--durability '86401' is not allowed; it takes one of auto, step, none, or a number from 1 to 86400"
