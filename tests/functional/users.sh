#!/bin/sh
# Several users of one daemon: what belongs to whom, who may see, end and join it, and what each may hold.
# users.sh PROGRAM SCENARIO: the program is user_job.c, the scenario users_SCENARIO.py
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1 scenario=$2
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'

case $scenario in
drop | evict | drain) set -- --administrators '60009, @60019' ;;
cache) set -- --host-budget 64M ;;
idle) set -- --idle-release-seconds 1 ;;
read) set -- --administrators 60009 --idle-release-seconds 1 ;;
connections)
	printf '[users]\nadministrators = 60009\n[limits]\nconnections = 16\nconnections_per_user = 4\n' >"$scratch/tierd.conf"
	set -- --config "$scratch/tierd.conf"
	;;
watch) set -- --administrators '60009' --output-queue 1M ;;
*) set -- ;;
esac
tierd_start "$@"
# Users need a way to the socket, and to tierctl wherever it was built.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
cp "$TIERCTL" "$scratch/tierctl"
chmod 755 "$scratch/tierctl"
# What they read and write is there, too: a tree below /root they could not enter.
TMPDIR=$scratch TIERD_PID=$tierd_pid TIERD_LOG=$tierd_log NVME=$nvme CONF=$scratch/tierd.conf TIERCTL=$scratch/tierctl \
	python3 "$(dirname "$0")/users_$scenario.py" "$program" || fail 'see above'
tierd_stop
forget_jobs
