#!/bin/sh
# The example trainer with each optimizer and format: through tierd it ends with the same bits as in plain memory.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--layers 2 --steps 5 --ranks 2 --mode replace'

check() {
	train --no-tierd --dump "$scratch/plain" "$@"
	train --dump "$scratch/tierd" "$@"
	cmp "$scratch/plain" "$scratch/tierd" || fail "tierd gives another result with $*"
}

tierd_start
check --optimizer adamw
check --optimizer adam --stage 2
check --optimizer sgd --learning-rate 0.1 --micro-batches 2
check --optimizer sgd --momentum 0 --stage 1 --format fp32
# Nothing is kept beside the parameters, wherever that would lie.
check --optimizer sgd --momentum 0 --format fp32 --optimizer-on host
check --optimizer lion --stage 0
check --moments bf16
check --moments bf16 --optimizer lion --stage 1 --format fp16
check --moments bf16 --optimizer sgd --learning-rate 0.1 --stage 2 --ranks 3 --format fp32
check --moments bf16 --optimizer-on host --micro-batches 2
check --moments int8
check --moments int8 --optimizer lion --stage 1 --format fp16
check --moments int8 --optimizer sgd --learning-rate 0.1 --stage 2 --ranks 3 --format fp32
check --moments int8 --optimizer-on host --micro-batches 2
# A unit of more than one extent in each of its streams.
check --moments int8 --layers 1 --width 384
check --moments int8 --layers 1 --width 384 --clip 0
# Between commits what is kept in memory is not written: the dump has it written first.
check --durability 60 --moments int8 --layers 1 --width 384 --ranks 1
check --durability 60 --moments bf16 --stage 1 --format fp16
check --durability 60 --clip 0 --micro-batches 2
check --stage 2 --gradients-on nvme --micro-batches 2
check --format fp16 --stage 3 --micro-batches 2
check --format fp16 --stage 1 --optimizer lion
# Nothing is clipped, so layers are updated while the backward pass still runs.
check --clip 0 --moments bf16 --micro-batches 2
check --clip 0 --stage 2 --format fp32 --optimizer lion
check --clip 0 --stage 2 --no-announce
check --clip 0 --format fp16 --loss-scale dynamic:1e8 --steps 12
check --format fp16 --loss-scale 1024
check --format fp16 --loss-scale dynamic --ranks 3
# From so high on it has to come down: gradients overflow at first.
check --format fp16 --loss-scale dynamic:1e8 --steps 12 --json "$scratch/report"
grep -q '"skipped_steps": [1-9]' "$scratch/report" || fail "nothing has overflown: $(cat "$scratch/report")"
grep -q '"loss_scale": 1e+08' "$scratch/report" && fail 'the loss scale has not backed off'
expect_status 2 "$gpt" --loss-scale 0
expect_text 'a number from 1'
grep -q . "$scratch/tierd" || fail 'the dump is empty'
expect_status 2 "$gpt" --optimizer adagrad
expect_text 'adamw|adam|sgd|lion'
tierd_stop
