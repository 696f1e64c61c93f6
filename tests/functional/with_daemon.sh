#!/bin/sh
# A program beside a daemon: what it finds wrong, it says. with_daemon.sh PROGRAM [ARGUMENT…]
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

tierd_start
timeout "$patience" "$@" || fail 'see above'
tierd_stop
