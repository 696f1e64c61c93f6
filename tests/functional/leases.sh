#!/bin/sh
# Readers, an evictor, updates and random kills: no reader ever sees a unit change or mix its versions.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
"$program" "${SEED:-1}" "${KILLS:-12}" || fail "see above; seed ${SEED:-1}"
tierd_stop
