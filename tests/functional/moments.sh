#!/bin/sh
# Jobs that keep their moments in bf16 or in 8 bits, all or some of them.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1 format=$2

tierd_start
timeout "$patience" "$program" "$format" || fail 'see above'
"$TIERCTL" --json jobs >"$scratch/out"
for moments in "\"fp32, $format\"" '"fp32"'; do
	grep -q "\"moments\":[[:space:]]*$moments" "$scratch/out" || fail "no job with moments in $moments: $(cat "$scratch/out")"
done
tierd_stop
