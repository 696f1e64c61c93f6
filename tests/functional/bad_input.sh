#!/bin/sh
# What a trainer can do wrong until its job is ready; and a disk that is full.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
# For the other user's part.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
"$program" || fail 'see above'
tries=1000
while [ -n "$(find "$nvme" -name '*.store')" ]; do
	tries=$((tries - 1))
	[ $tries -gt 0 ] || fail 'a store file is left'
done
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
