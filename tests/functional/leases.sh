#!/bin/sh
# Readers, an evictor, updates and random kills: no reader ever sees a unit change or mix its versions. And with
# TIERD_DEBUG=leases a read without a lease faults.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
"$program" "${SEED:-1}" "${KILLS:-12}" || fail "see above; seed ${SEED:-1}"
"$program" debug || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
