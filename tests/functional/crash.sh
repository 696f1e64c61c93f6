#!/bin/sh
# The example trainer with a rank that kills itself at each of its crash points: restarted, it ends with the same bits
# as an uninterrupted run, and the other ranks hear who died.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--layers 2 --steps 5 --ranks 4 --mode replace'

tierd_start
for configuration in 'nvme --stage 3' 'micro --stage 2 --micro-batches 2' 'early --stage 0 --micro-batches 2 --format fp32' \
	'scaled --stage 3 --format fp16 --loss-scale dynamic:1e8'; do
	name=${configuration%% *} flags=${configuration#* }
	# shellcheck disable=SC2086
	train $flags --job "calm-$name" --dump "$scratch/calm"
	# The others have left: a rank that is started again finds the job finished, and needs none of them.
	# shellcheck disable=SC2086
	RANK=0 WORLD_SIZE=4 TORCHELASTIC_RESTART_COUNT=1 train $flags --job "calm-$name" --dump "$scratch/again" \
		--json "$scratch/report" --sample-bytes 4
	cmp "$scratch/calm" "$scratch/again" || fail "$name: another result is read from the finished job"
	# shellcheck disable=SC2086
	for rank in 0 1; do
		train $flags --job "wild-$name" --dump "$scratch/wild" --crash-at "4:end:$rank" --restart 1
		cmp "$scratch/calm" "$scratch/wild" || fail "$name: another result after rank $rank has died at the end"
	done
	for crash in 0:gather:0 2:gather:3 4:gather:1 0:push:1 3:push:0 1:step:2 2:step:0 4:step:3 0:stepped:2 3:stepped:0 3:stepped:1; do
		# shellcheck disable=SC2086
		train $flags --job "wild-$name" --dump "$scratch/wild" --crash-at "$crash" --restart 1
		cmp "$scratch/calm" "$scratch/wild" || fail "$name: another result after a crash at $crash"
		grep -q "rank ${crash##*:} (pid [0-9]*) is lost" "$scratch/out" ||
			fail "nobody says that rank ${crash##*:} died: $(cat "$scratch/out")"
	done
done
tierd_stop
