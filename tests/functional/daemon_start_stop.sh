#!/bin/sh
# Starts, answers, ends by SIGTERM and SIGINT, and leaves nothing behind but its state directory.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

expect_status 0 "$TIERD" --version
expect_text 'tierd '
expect_status 0 "$TIERD" --help
expect_text '--host-budget'

tierd_start --log-level debug
mode=$(stat -c %a "$TIERD_SOCKET")
folder_mode=$(stat -c %a "$(dirname "$TIERD_SOCKET")")
if [ "$(id -u)" -eq 0 ] || [ "$(id -un)" = tierd ]; then
	[ "$mode $folder_mode" = '660 750' ] || fail "modes of the socket and its folder: $mode $folder_mode"
else
	[ "$mode $folder_mode" = '600 700' ] || fail "modes of the socket and its folder: $mode $folder_mode"
fi
[ "$(cat "$scratch/state/lock")" = "$tierd_pid" ] || fail 'the lock does not name the daemon'

# Its threads get a processor soon, where the kernel gives short slices.
if [ -e /proc/self/sched ] && [ "$(printf '%s\n' 6.12 "$(uname -r)" | sort -V | head -n 1)" = 6.12 ]; then
	slices=$(sed -n 's/^se.slice *: *//p' /proc/"$tierd_pid"/task/*/sched | sort -u)
	[ "$slices" = 100000 ] || fail "slices of its threads: $slices"
fi

kill -HUP "$tierd_pid"
expect_status 0 "$TIERCTL" ping
grep -q 'configuration was read again' "$tierd_log" || fail 'the log does not mention the reload'

tierd_stop
[ ! -e "$TIERD_SOCKET" ] || fail 'the socket is still there'
expect_status 3 "$TIERCTL" ping

# A folder that is missing where nobody would look for it is a mistake, and not made.
expect_status 1 timeout "$patience" "$TIERD" --host-budget 64M --state-dir "$scratch/other" --socket "$scratch/no/such/y.sock"
expect_text "cannot listen at $scratch/no/such/y.sock: there is no folder $scratch/no/such; make it, or choose another --socket"
expect_status 1 env -u XDG_RUNTIME_DIR timeout "$patience" "$TIERD" --host-budget 64M --state-dir "$scratch/other" --socket "$scratch/no/y.sock"
expect_text "there is no folder $scratch/no;"
[ ! -e "$scratch/no" ] || fail 'the folder of a socket was made'

tierd_start --log-level debug
kill -INT "$tierd_pid"
wait "$tierd_pid" || fail 'SIGINT: not a clean end'
tierd_pid=

# Before it listens: it has its lock, and comes no further than to what it has to say, which nobody reads.
mkfifo "$scratch/full"
exec 8<>"$scratch/full"
dd if=/dev/zero of="$scratch/full" bs=4096 count=1024 oflag=nonblock 2>/dev/null || true
for signal in TERM INT; do
	"$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/early-$signal" --host-budget 64M 2>&8 &
	tierd_pid=$!
	await grep -qsx "$tierd_pid" "$scratch/early-$signal/lock" || fail 'it does not take its lock'
	kill "-$signal" "$tierd_pid"
	status=0
	wait "$tierd_pid" || status=$?
	tierd_pid=
	[ $status -eq 0 ] || fail "SIG$signal before it listens: exit status $status"
done
