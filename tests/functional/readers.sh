#!/bin/sh
# Readers of a job that is trained, of an idle one, and of one whose host memory was given back; and that nothing is left
# of those that were killed.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

used() {
	"$TIERCTL" --json status | sed -n 's/.*"used_bytes": *\([0-9]*\).*/\1/p' | head -n 1
}

everything_is_given_back() {
	[ "$(used)" = "$begin" ] && [ "$(open_descriptors)" = "$descriptors" ]
}

tierd_start --host-budget 512M --idle-release-seconds 600
begin=$(used)
descriptors=$(open_descriptors)
for place in 'nvme nvme 62' 'nvme nvme 0' 'host host 0' 'host nvme 0'; do
	# shellcheck disable=SC2086
	"$program" $place || fail "$place: see above"
	for job in read reference; do
		expect_status 0 "$TIERCTL" drop $job --yes
	done
	await everything_is_given_back ||
		fail "$place: $(used) bytes are used, were $begin; $(open_descriptors) descriptors, were $descriptors"
done
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
