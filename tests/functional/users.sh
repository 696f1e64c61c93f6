#!/bin/sh
# Several users of one daemon: what belongs to whom, who may see, end and join it, and what each may hold.
# users.sh PROGRAM SCENARIO: the program is user_job.c, the scenario users_SCENARIO.py
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1 scenario=$2
command -v python3 >/dev/null || skip 'python3 is not installed'
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'

case $scenario in
drop | evict | drain) set -- --administrators '60009, @60019' ;;
cache) set -- --host-budget 64M ;;
withhold)
	printf '[users]\nadministrators = 60009\nlimit = * host_maximum=64M\n' >"$scratch/tierd.conf"
	set -- --config "$scratch/tierd.conf"
	;;
idle) set -- --idle-release-seconds 1 ;;
revoke) set -- --administrators 60009 ;;
read) set -- --administrators 60009 --idle-release-seconds 1 ;;
connections)
	printf '[users]\nadministrators = 60009\n[limits]\nconnections = 16\nconnections_per_user = 4\n' >"$scratch/tierd.conf"
	set -- --config "$scratch/tierd.conf"
	;;
limits)
	cat >"$scratch/tierd.conf" <<-'END'
		[users]
		limit = 60001 host_maximum=64M nvme_maximum=120M snapshots_maximum=2
		limit = @60020 host_default=12M
		limit = @60019 host_default=16M nvme_default=30M
		limit = @60021 snapshots_default=3
		limit = @60022 snapshots_default=1 snapshots_maximum=2
		limit = 60005 snapshots_maximum=0 io_share=7 io_weight_maximum=50
		limit = * host_maximum=128M
	END
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
play() {
	TMPDIR=$scratch TIERD_PID=$tierd_pid TIERD_LOG=$tierd_log NVME=$nvme CONF=$scratch/tierd.conf TIERCTL=$scratch/tierctl \
		python3 "$(dirname "$0")/users_$scenario.py" "$program" "$1" || fail 'see above'
}
play first
if [ "$scenario" = revoke ]; then
	tierd_kill
	tierd_start "$@"
	chmod 666 "$TIERD_SOCKET"
	play again
fi
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
forget_jobs
