#!/bin/sh
# What works only half is said once, with what to do about it: memory that cannot be pinned, a kernel without io_uring, a
# write that failed and went elsewhere, a folder of somebody else's.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"
program=$TIERD

expect_once() { # TEXT: in the log
	count=$(grep -c "$1" "$tierd_log") || true
	[ "$count" -eq 1 ] || fail "the log has $count lines with '$1': $(cat "$tierd_log")"
}

gpt_flags='--layers 3 --width 384 --heads 4 --steps 3 --stage 3'

# limit_memory KIB: daemons from now on may lock no more, even as root.
limit_memory() {
	cat >"$scratch/tierd" <<-END
		#!/bin/sh
		ulimit -l $1
		exec setpriv --bounding-set -ipc_lock '$program' "\$@"
	END
	chmod +x "$scratch/tierd"
	TIERD=$scratch/tierd
}

# ---- A write that failed and went elsewhere

# So small that each extent is one write: one that fails beside others of its extent cannot move.
tierd_start --fault complete:write:5:EIO
train --layers 1 --width 32
expect_once "job gpt of user [0-9]*: $nvme/tierd/.*\.store cannot be written at byte [0-9]*: Input/output error, falling back to another place"
tierd_stop
forget_jobs

# Of the first values, whose rank is told; nothing was there that could be broken.
: >"$tierd_log"
tierd_start --fault complete:write:20:EIO:lasting
expect_status 1 run_gpt
expect_text "of $nvme/tierd/"
expect_text 'cannot be written: Input/output error; look at the disk'
tierd_stop
forget_jobs

# What is lost is lost, but the file is named as it is, and once.
: >"$tierd_log"
tierd_start --fault complete:write:20:EIO:lasting
expect_status 1 run_gpt --micro-batches 2
expect_text "written to $nvme/tierd/"
case $output in
*'Input/output error'*'Input/output error'*) fail "the error is there twice: $output" ;;
esac
expect_once 'job gpt of user [0-9]*: it is broken'
tierd_stop

# ---- Memory that cannot be pinned, a kernel without io_uring

if setpriv --bounding-set -ipc_lock true 2>/dev/null && {
	tierd_start
	"$TIERCTL" --json status | grep -q '"io_engine":[^"]*"io_uring"'
}; then
	tierd_stop
	limit_memory 1024
	: >"$tierd_log"
	tierd_start
	train --job one
	train --job two
	expect_once 'memory cannot be pinned for the devices: RLIMIT_MEMLOCK allows 1024 KiB (raise it by ulimit -l'
	expect_status 0 "$TIERCTL" status
	expect_text ', 0 B pinned'
	tierd_stop
	limit_memory 0
	expect_status 1 timeout "$patience" "$TIERD" --socket "$scratch/refused/tierd.sock" --state-dir "$scratch/refused-state" \
		--host-budget 64M --io-engine io_uring
	expect_text 'io_uring_setup: Cannot allocate memory (RLIMIT_MEMLOCK: raise it by ulimit -l'
	case $output in
	*'falling back'*) fail "it says that it falls back, and does not: $output" ;;
	esac
	TIERD=$program
else
	echo 'the limits of memory are skipped: no setpriv, or no io_uring'
	tierd_stop
fi

# ---- A folder of somebody else's

if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups true 2>/dev/null; then
	mkdir -m 0755 "$scratch/theirs"
	chmod 0755 "$scratch"
	mkdir -m 0777 "$scratch/nobody"
	cp "$program" "$scratch/nobody/tierd"
	expect_status 1 setpriv --reuid 65534 --clear-groups timeout "$patience" "$scratch/nobody/tierd" --host-budget 64M \
		--socket "$scratch/nobody/run/tierd.sock" --state-dir "$scratch/nobody/state" --nvme "$scratch/theirs:64M"
	expect_text "wants to make a folder \"tierd\" in it and to write there: Permission denied; as root: install -d -o"
else
	echo 'the folder of somebody else is skipped: not root, or no setpriv'
fi
