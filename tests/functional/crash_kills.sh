#!/bin/sh
# Ranks killed at any moment, again and again: the same bits as without, and nothing is left behind.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

host_used() {
	"$TIERCTL" status --json | grep -o '"used_bytes":[^,]*' | head -n 1
}

memfds() {
	find "/proc/$tierd_pid/fd" -lname '*tierd-*' | wc -l
}

everything_is_given_back() {
	[ "$(open_descriptors)" -le "$before" ] && [ "$(host_used)" = "$memory" ] && [ "$(memfds)" -le "$shared" ]
}

tierd_start
"$program" "${SEED:-1}" 1 || fail 'see above'
before=$(open_descriptors) memory=$(host_used) shared=$(memfds)
"$program" "${SEED:-1}" "${KILLS:-25}" || fail "see above; seed ${SEED:-1}"
await everything_is_given_back || fail "descriptors: $before, then $(open_descriptors); memory: $memory, then $(host_used)"
output=$("$TIERCTL" jobs)
case $output in
*calm* | *wild*) fail "jobs are left: $output" ;;
esac
tierd_stop
forget_jobs
