#!/bin/sh
# Two jobs of different weights share one disk, under every kind of engine and with next to no room in the queues;
# tierctl shows what was asked for.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1
mkdir "$nvme/second"

run() {
	tierd_start "$@"
	"$program" || fail "with the flags '$*', see above"
	expect_status 0 "$TIERCTL" --json jobs
	expect_text '"io_weight":	10000'
	expect_text '"io_weight":	1,'
	expect_status 0 "$TIERCTL" jobs
	expect_text 'IO WEIGHT'
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status with the flags '$*'"
}

run
run --queue-depth 1 --background-bytes 1M
run --io-engine plain
run --nvme "$nvme/second:1G"
