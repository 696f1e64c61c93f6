#!/bin/sh
# A job is replaced while a decided step of it is being applied.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

# Files are removed and closed off the loop, after the space counts as free. At the start a ping may still have been open.
everything_is_given_back() {
	[ -z "$(find "$nvme" -name '*.store')" ] && [ "$(open_descriptors)" -le "$descriptors" ]
}

tierd_start
descriptors=$(open_descriptors)
"$1" || fail 'see above'
await everything_is_given_back ||
	fail "left: $(find "$nvme" -name '*.store'), $(open_descriptors) descriptors, were $descriptors"
! grep -q 'is broken' "$tierd_log" || fail 'a job broke'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
