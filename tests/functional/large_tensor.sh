#!/bin/sh
# A tensor of more than 2^31 elements: 18 GiB of host memory, and 18 GB of the disk, for a minute or two.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1

[ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 19 ] || skip '19 GiB of memory are not available'
[ "$(df --output=avail -k "$nvme" | awk 'NR == 2 { print int($1 / 1048576) }')" -ge 20 ] || skip '20 GiB are not free on the disk'

nvme_capacity=20G
patience=1000
tierd_start --host-budget 18G
timeout "$patience" "$program" train || fail 'large_tensor train'
tierd_kill
tierd_start --host-budget 18G
timeout "$patience" "$program" resume || fail 'large_tensor resume'
tierd_stop
forget_jobs
