#!/bin/sh
# tierctl tensors lists what a job's ranks have defined, in pages, and where it is.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'

tierd_start
python3 "$(dirname "$0")/tensors.py" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
