#!/bin/sh
# Each connection is cut after some bytes, anywhere, again and again: the training ends with the same bits as one that
# nobody disturbed.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--layers 2'

tierd_start --connections-per-user 64
mkfifo "$scratch/end"
# A rank of several that is cut after the last step would wait for those that have left. One that is alone reads its dump then,
# for which no line lives long enough: so many cuts that it gets there while there are some, and not one more.
for configuration in 'single 40 --ranks 1 --stage 3' 'pair 6 --ranks 2 --stage 3' \
	'micro 6 --ranks 2 --stage 1 --micro-batches 2'; do
	name=${configuration%% *} flags=${configuration#* }
	maximum=${flags%% *} flags=${flags#* }
	# shellcheck disable=SC2086
	train $flags --steps 24 --job "calm-$name" --dump "$scratch/calm"
	# Values are written before anything is cut: those that were not kept would have to be written again.
	# shellcheck disable=SC2086
	train $flags --steps 1 --job "cut-$name"
	python3 "$(dirname "$0")/cutting_proxy.py" "$scratch/proxy" 7 1500 5000 "$maximum" <"$scratch/end" >"$scratch/cuts" &
	proxy=$!
	exec 9>"$scratch/end"
	await grep -qs listening "$scratch/cuts" || fail 'the proxy does not listen'
	# shellcheck disable=SC2086
	TIERD_RECONNECT_MS=20000 TIERD_SOCKET=$scratch/proxy train $flags --steps 24 --job "cut-$name" --dump "$scratch/cut"
	exec 9>&-
	wait "$proxy"
	cuts=$(tail -n 1 "$scratch/cuts")
	rm "$scratch/proxy"
	[ "$cuts" -ge 3 ] || fail "$name: only $cuts connections were cut"
	cmp "$scratch/calm" "$scratch/cut" || fail "$name: another result after $cuts cuts"
	echo "$name: $cuts cuts"
done
tierd_stop
