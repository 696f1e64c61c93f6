#!/bin/sh
# What the daemon and a service manager say to each other: readiness, watchdog, reload, an inherited socket.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
ldd "$TIERD" | grep -q libsystemd || skip 'tierd is built without libsystemd'

service=$(dirname "$0")/service.py
sed -n 's/^def \([a-z_]*\)():$/\1/p' "$service" | grep -vx log >"$scratch/scenarios"
while read -r scenario; do
	mkdir "$scratch/$scenario"
	tierd_log=$scratch/$scenario/log
	SCRATCH=$scratch/$scenario XDG_RUNTIME_DIR=$scratch/$scenario \
		TIERD_SOCKET=$scratch/$scenario/run/tierd.sock timeout "$patience" python3 "$service" "$scenario" \
		"$TIERD" --socket "$scratch/$scenario/run/tierd.sock" --state-dir "$scratch/$scenario/state" \
		--host-budget 64M --workers 1 </dev/null || fail "$scenario"
done <"$scratch/scenarios"
