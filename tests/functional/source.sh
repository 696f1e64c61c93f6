#!/bin/sh
# A new job takes its values from another one, whose state lies in host memory, on NVMe, or was found on the devices.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1

tierd_start
timeout "$patience" "$program" || fail 'see above'
tierd_stop
tierd_start
timeout "$patience" "$program" again || fail 'with a source that was found on the devices: see above'
tierd_stop
