#!/bin/sh
# placement = auto: the budget decides where state lies, not what comes out.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--layers 6 --width 256 --steps 3 --ranks 2'

# BUDGET PARAMETERS OPTIMIZER
check() {
	train --mode replace --parameters-on auto --optimizer-on auto --host-budget "$1" --dump "$scratch/tierd"
	cmp "$scratch/plain" "$scratch/tierd" || fail "with $1 of host memory the result is another one"
	expect_status 0 "$TIERCTL" jobs
	expect_text "$2 (auto)"
	expect_text "$3 (auto)"
	expect_status 0 "$TIERCTL" jobs gpt --json
	expect_text "\"parameter_placement\":	\"$2\""
	expect_text "\"optimizer_placement\":	\"$3\""
	expect_text '"is_optimizer_placement_auto":	true'
	grep -q "placement auto: parameters on $2, optimizer state on $3" "$tierd_log" || fail 'the log does not tell'
}

tierd_start
train --no-tierd --dump "$scratch/plain"
check 120M host host
check 60M host nvme
check 44M host nvme
check 24M nvme nvme
# Who returns finds it as it was, and has to ask for the same.
train --mode resume --steps 4 --parameters-on auto --optimizer-on auto --host-budget 24M
expect_status 1 run_gpt --steps 5 --mode resume --parameters-on nvme --optimizer-on auto --host-budget 24M
expect_text 'parameter placement is nvme here, auto in the job'
# What is advised to whom has too little.
refused() {
	expect_status 1 run_gpt --job small "$@"
	expect_text 'raise host_budget'
}
refused --parameters-on host --optimizer-on host --host-budget 24M
expect_text ', or place more on NVMe'
refused --parameters-on nvme --optimizer-on nvme --host-budget 1K
case $output in
*'place more'*) fail "there is no more: $output" ;;
esac
tierd_stop
