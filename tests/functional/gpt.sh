#!/bin/sh
# What the example trainer tells: where a job stands, what is wrong with its flags, its files and its environment, and
# that before it trains.
# shellcheck source=tests/functional/lib.sh disable=SC2016,SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

gpt_flags='--log-every 10'

expect_no_text() {
	case $output in
	*"$1"*) fail "'$1' is in: $output" ;;
	esac
}

# ---- Flags, files and environment: said before anybody connects

expect_status 2 run_gpt --host-budget 9X
expect_text 'a size such as 8G (K, M, G or T)'
expect_status 2 run_gpt --ranks 4 --crash-at 1:push:9
expect_text 'a rank that there is'
expect_status 2 run_gpt --ranks 4 --crash-at 1:pull
expect_status 1 run_gpt --data "$scratch"
expect_text "cannot read $scratch: Is a directory"
for flag in json dump; do
	expect_status 1 run_gpt --$flag "$scratch/none/file"
	expect_text "gpt: $scratch/none/file: No such file or directory"
	expect_no_text 'no tierd listens'
done
expect_status 1 run_gpt --no-tierd --steps 1 --json /dev/full
expect_text 'gpt: /dev/full: No space left on device'
expect_status 1 run_gpt --no-tierd --steps 1 --dump /dev/full
expect_text 'gpt: /dev/full: No space left on device'
# What an earlier run has left there stays, unless this one succeeds.
for flag in json dump; do
	echo older >"$scratch/$flag"
	expect_status 1 run_gpt --socket "$scratch/nobody" --$flag "$scratch/$flag"
	[ "$(cat "$scratch/$flag")" = older ] || fail "a run that failed has destroyed the older $flag"
	[ ! -e "$scratch/$flag.partial" ] || fail "a run that failed has left $flag.partial"
	expect_status 0 run_gpt --no-tierd --steps 1 --$flag "$scratch/$flag"
	[ "$(head -c 5 "$scratch/$flag")" != older ] || fail "the older $flag was not replaced"
	[ ! -e "$scratch/$flag.partial" ] || fail "a run has left $flag.partial"
done
expect_status 2 env RANK=1 "$gpt"
expect_text 'belong together'
expect_status 2 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 "$gpt"
expect_text 'one node'
expect_status 2 env RANK=0 WORLD_SIZE=1 LOCAL_RANK=first "$gpt"
expect_text LOCAL_RANK
expect_status 2 env RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "$gpt"
expect_text 'LOCAL_RANK 0 of LOCAL_WORLD_SIZE 2 is not RANK 0 of WORLD_SIZE 4'
expect_status 2 env RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=often "$gpt"
expect_text 'TORCHELASTIC_RESTART_COUNT'
expect_status 0 "$gpt" --help
expect_text LOCAL_RANK

# ---- Where a job stands

tierd_start
expect_status 0 env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 timeout "$patience" "$gpt" --layers 1 --width 32 --heads 2 --context 16 \
	--batch 2 --threads 1 --data "$scratch/data" --steps 3 --log-every 1
expect_text 'step     3/3'
expect_text 'left'
expect_text 'of update in the daemon'
expect_no_text 'stands at'
expect_status 0 run_gpt --steps 3
expect_text 'job gpt stands at step 3 of 3: nothing to do; give a larger --steps, --mode replace or another --job'
expect_no_text nan
expect_status 0 run_gpt --steps 5 --ranks 1 --sample-bytes 8
expect_text 'job gpt stands at step 3 of 5: going on from there'
expect_text 'sample'
expect_no_text nan
expect_status 0 env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=1 timeout "$patience" "$gpt" \
	--layers 1 --width 32 --heads 2 --context 16 --batch 2 --threads 1 --data "$scratch/data" --steps 6 --mode replace \
	--crash-at 5:push:0
expect_text 'job gpt stands at step 5 of 6: going on from there'
expect_status 0 run_gpt --steps 3 --mode replace --host-budget 1T
expect_no_text 'stands at'

# ---- Advice that helps

# Other options are refused: starting such a rank again would not help.
expect_status 1 run_gpt --steps 3 --ranks 2 --clip 0.5
expect_text 'failed with status 1'
expect_no_text '--restart'
expect_status 1 run_gpt --steps 3 --ranks 2 --mode replace --crash-at 1:push:1
expect_text '--restart N starts a rank again that is killed'

# ---- A rank that hangs is found

ranks() { # AWK-PROGRAM: over the lines of the ranks
	"$TIERCTL" jobs gpt 2>/dev/null | awk "$1"
}

wait_until() { # AWK-PROGRAM: ends with 0
	await ranks "$1" || fail "the ranks are never so: $("$TIERCTL" jobs gpt)"
}

run_gpt --steps 1000000 --ranks 3 --mode replace --log-every 0 >"$scratch/out" 2>&1 &
launcher=$!
wait_until '/training, step [1-9]/ { is_stepping = 1 } END { exit !is_stepping }'
hanging=$(ranks '$1 == 1 { print $2 }')
kill -STOP "$hanging"
wait_until '$1 == 1 && /ago  training/ { hangs = 1 } ($1 == 0 || $1 == 2) && /ago  waiting/ { waiting++ }
	END { exit !(hangs && waiting == 2) }'
kill -KILL "$hanging"
wait "$launcher" && fail 'a rank was killed, and gpt succeeds'
tierd_stop
forget_jobs

# ---- Longer names and more dimensions than are allowed

tierd_start --job-name-length 3 --name-length 8
expect_status 1 run_gpt --steps 1 --job long
expect_text 'the name of job long has 4 bytes; at most 3 are allowed (job_name_length)'
expect_status 1 run_gpt --steps 1
expect_text 'a unit has a name of 9 bytes; 1 to 8 are allowed (name_length)'
tierd_stop
tierd_start --dimensions-per-tensor 1
expect_status 1 run_gpt --steps 1
expect_text 'has 2 dimensions; at most 1 are allowed (dimensions_per_tensor)'
tierd_stop

# ---- Fewer connections than ranks

tierd_start --connections-per-user 2
expect_status 1 run_gpt --steps 3 --ranks 3
expect_text 'connections_per_user'
expect_no_text '--socket'
tierd_stop
