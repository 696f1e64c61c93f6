#!/bin/sh
# What a trainer can do wrong until its job is ready; and a disk that is full.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
# For the other user's part.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
no_store_is_left() {
	[ -z "$(find "$nvme" -name '*.store')" ]
}

"$program" || fail 'see above'
await no_store_is_left || fail 'a store file is left'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
