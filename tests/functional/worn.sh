#!/bin/sh
# What was written to a path outlives the daemon, is shown with the days that are left, and warns.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

of_path() { # KEY
	"$TIERCTL" --json tiers | python3 -c 'import json, sys; print(json.load(sys.stdin)["nvme"][0].get(sys.argv[1], "none"))' "$1"
}

start_at() { # PATH [FLAG…]
	path=$1
	shift
	"$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" --host-budget 64M --nvme "$path" --file-system memory "$@" \
		2>>"$tierd_log" &
	tierd_pid=$!
	until "$TIERCTL" ping >/dev/null 2>&1; do
		kill -0 "$tierd_pid" || fail 'the daemon ended while it started'
	done
}

tierd_start
[ "$(of_path written_ever_bytes)" -eq 0 ] || fail "before anything: $("$TIERCTL" tiers)"
[ "$(of_path endurance_bytes)" = none ] || fail "no endurance is given: $("$TIERCTL" tiers)"
"$program" worn "$scratch/diary" 1500000 2 </dev/null >/dev/null || fail 'the job'
ever=$(of_path written_ever_bytes)
# The last commit may be on its way yet.
[ "$ever" -gt 6000000 ] || fail "written: $("$TIERCTL" tiers)"
[ "$(of_path written_bytes)" -ge "$ever" ] || fail "by this daemon: $("$TIERCTL" tiers)"
tierd_stop

# ---- The next daemon counts on, and knows what is left

tierd_start --endurance 1M
[ "$(of_path written_ever_bytes)" -gt "$ever" ] || fail "$ever bytes are forgotten: $("$TIERCTL" tiers)"
[ "$(of_path written_bytes)" -lt "$ever" ] || fail "by this daemon alone: $("$TIERCTL" tiers)"
[ "$(of_path days_left)" -eq 0 ] || fail "all is written: $("$TIERCTL" tiers)"
grep -q "warning: NVMe path $nvme: .* of its endurance are written; .* it lasts 0 days" "$tierd_log" ||
	fail "the log says: $(cat "$tierd_log")"
"$TIERCTL" doctor >"$scratch/doctor" || true
grep -q 'endurance *poor .*lasts 0 days' "$scratch/doctor" || fail "the doctor says: $(cat "$scratch/doctor")"
expect_status 0 "$TIERCTL" plan --parameters 7B --world-size 8 --step-ms 10000
expect_text 'WRITTEN A DAY'
tierd_stop

# ---- A path that nobody names meanwhile is not forgotten; a file that is damaged is

mkdir "$nvme/other"
start_at "$nvme/other:64M"
[ "$(of_path written_ever_bytes)" -eq 0 ] || fail "another path: $("$TIERCTL" tiers)"
tierd_stop
rm -r "$nvme/other"
# A device that is another one has an endurance of its own.
start_at "$nvme:1G,2T" --endurance 1M
[ "$(of_path endurance_bytes)" -eq 2199023255552 ] || fail "its own: $("$TIERCTL" tiers)"
tierd_stop
tierd_start --endurance 1T
[ "$(of_path written_ever_bytes)" -gt "$ever" ] || fail "$ever bytes are forgotten: $("$TIERCTL" tiers)"
[ "$(of_path days_left)" = none ] || fail "nothing is known of the rate yet: $("$TIERCTL" tiers)"
tierd_stop
printf x >>"$scratch/state/written"
: >"$tierd_log"
tierd_start
grep -q 'written is damaged, and called written.damaged now' "$tierd_log" || fail "the log says: $(cat "$tierd_log")"
[ -f "$scratch/state/written.damaged" ] || fail "$(ls "$scratch/state")"
[ "$(of_path written_ever_bytes)" -lt "$ever" ] || fail "of a damaged file: $("$TIERCTL" tiers)"
tierd_stop
