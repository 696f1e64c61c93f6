#!/bin/sh
# The service manager is told when the daemon listens, and when it ends.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'
ldd "$TIERD" | grep -q libsystemd || skip 'tierd is built without libsystemd'

python3 "$(dirname "$0")/readiness.py" "$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" \
	--host-budget 64M >"$scratch/log" 2>&1 || fail 'see above'
