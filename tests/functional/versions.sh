#!/bin/sh
# Peers of other versions are agreed with, or refused with both sides' versions.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'
tierd_start --workers 1
python3 "$(dirname "$0")/versions.py" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
