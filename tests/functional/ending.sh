#!/bin/sh
# SIGTERM and SIGINT while a decided step is being applied, and again while the daemon ends: trainers get a clear error at
# once, whatever they hold or wait for, and nothing is left.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

# The program ends the daemon. Where it could not do so in time, all of it again.
scene() { # SCENE [FIRST SECOND]
	rounds=5
	scene_status=75
	while [ $scene_status -eq 75 ]; do
		rounds=$((rounds - 1))
		[ $rounds -ge 0 ] || fail "ending $*: the daemon is always done sooner"
		: >"$tierd_log"
		tierd_start
		scene_status=0
		"$program" "$1" "$tierd_pid" "${2:-TERM}" "${3:-TERM}" || scene_status=$?
		[ $scene_status -eq 0 ] || [ $scene_status -eq 75 ] || fail "ending $*, see above"
		tierd_status=0
		wait "$tierd_pid" || tierd_status=$?
		tierd_pid=
		[ "$tierd_status" -eq 0 ] || fail "ending $*: exit status $tierd_status"
		forget_jobs
		[ ! -e "$TIERD_SOCKET" ] || fail "ending $*: the socket is left"
		grep -q 'ending: finishing the steps that were decided' "$tierd_log" || fail "ending $*: nothing is said"
		[ "$(tail -n 1 "$tierd_log")" = 'tierd: ended' ] || fail "ending $*: it does not say that it has ended"
	done
}

scene decided
! grep -q 'ending at once' "$tierd_log" || fail 'one signal ends it at once'
! grep -q 'is broken' "$tierd_log" || fail 'a job broke'
for signals in 'TERM TERM' 'TERM INT' 'INT TERM' 'INT INT'; do
	# shellcheck disable=SC2086
	scene twice $signals
	[ "$(grep -c 'ending at once, without finishing the running steps' "$tierd_log")" -eq 1 ] ||
		fail "$signals: the second signal does not end it, or does more than once"
done
