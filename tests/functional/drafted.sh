#!/bin/sh
# Jobs that are defined and written unit by unit: they have the bits of jobs that were defined first, wherever their state lies, and
# also if a rank writes units that another one has not defined yet. What was written to one that never began is gone with its ranks, or
# with the daemon; a disk that is full is told by the write that it has no room for.
if [ -z "${IN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	exec unshare --mount env IN_NAMESPACE=1 sh "$0" "$@"
fi
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
mkfifo "$scratch/in" "$scratch/out"

# The second rank begins when the first one has written all that is its own.
train() { # HOW RANKS JOB PLACEMENT FILE
	"$program" train "$1" 0 "$2" "$3" "$4" "$5" >"$scratch/out" &
	rank=$!
	read -r _ <"$scratch/out" || fail "no rank of $3"
	[ "$2" -eq 1 ] || expect_status 0 timeout "$patience" "$program" train "$1" 1 "$2" "$3" "$4" "$5"
	wait $rank || fail "the rank of $3 ends with $?"
}

begin_staying() { # JOB
	"$program" stay "$1" <"$scratch/in" >"$scratch/out" &
	rank=$!
	exec 7>"$scratch/in"
	read -r _ <"$scratch/out" || fail "no rank of $1"
	[ -n "$(drafts)" ] || fail "nothing of $1 is on the disk"
}

drafts() {
	find "$nvme" -name '*.draft'
}

has_no_drafts() {
	[ -z "$(drafts)" ]
}

has_no_job() { # JOB
	! "$TIERCTL" jobs "$1" >/dev/null 2>&1
}

tierd_start
for ranks in 1 2; do
	for placement in nvme host volatile; do
		for how in whole drafted; do
			train $how $ranks $how-$placement-$ranks $placement "$scratch/$how"
			"$TIERCTL" drop $how-$placement-$ranks --yes >/dev/null
		done
		cmp "$scratch/whole" "$scratch/drafted" || fail "other bits: $placement, $ranks ranks"
		await has_no_drafts || fail "left: $(drafts)"
	done
done

# The rank is killed: the job goes, and the draft with it.
begin_staying killed
kill -KILL $rank
wait $rank || true
exec 7>&-
await has_no_job killed || fail "it is there: $("$TIERCTL" jobs)"
await has_no_drafts || fail "left: $(drafts)"

# The daemon is told to end.
begin_staying ended
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
exec 7>&-
wait $rank || true
has_no_drafts || fail "left: $(drafts)"

# The daemon is killed: the next one knows no such job, and removes the file.
tierd_start
begin_staying lost
tierd_kill
exec 7>&-
wait $rank || true
[ -n "$(drafts)" ] || fail 'the file has gone by itself'
tierd_start
has_no_drafts || fail "left: $(drafts)"
has_no_job lost || fail "it is there: $("$TIERCTL" jobs)"
[ -z "$(find "$nvme" -name 'lost*')" ] || fail "left: $(find "$nvme" -name 'lost*')"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
forget_jobs

# A disk of its own is full.
# shellcheck source=tests/functional/ext4.sh
. "$(dirname "$0")/ext4.sh"
ext4_mount 64M
tierd_start --nvme "$disk:1G"
expect_status 0 "$program" fill full
await has_no_drafts || fail "left: $(drafts)"
await has_no_job full || fail "it is there: $("$TIERCTL" jobs)"
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
