#!/bin/sh
# What tierctl shows of jobs: units page by page, leases, what a step is doing, and more jobs than one screen.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"

# Each of 240 members has a window of 1 MiB.
tierd_start --host-budget 512M
python3 "$(dirname "$0")/reports.py" "$1" || fail 'see above'
tierd_stop
