#!/bin/sh
# Ranks, users and a daemon in containers; connections that outlive their process. containers.sh PROGRAM: user_job.c
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'

tierd_start --administrators root
# Users need a way to the socket, and to tierctl, the program and its library, wherever they were built.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
cp "$TIERCTL" "$program" "$(ldd "$program" | sed -n 's/.*libtierd.* => \(.*\) (0x.*/\1/p')" "$scratch"
LD_LIBRARY_PATH=$scratch TIERCTL=$scratch/tierctl NVME=$nvme SCRATCH=$scratch python3 "$(dirname "$0")/containers.py" "$scratch/${program##*/}" \
	>"$scratch/output" 2>&1 || {
	cat "$scratch/output"
	fail 'see above'
}
grep -q "^skipped: " "$scratch/output" && {
	cat "$scratch/output"
	exit 77
}
expect_status 0 "$TIERCTL" ping
tierd_stop
