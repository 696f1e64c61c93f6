#!/bin/sh
# Which rank the others wait for, for what and since when: it is shown, and told to who watches.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'

tierd_start
python3 "$(dirname "$0")/waits.py" || fail 'see above'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
