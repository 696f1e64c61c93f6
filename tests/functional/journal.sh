#!/bin/sh
# The journal gets each line with its fields: job, user, tier, device, step. journal.sh PROGRAM: user_job.c
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
ldd "$TIERD" | grep -q libsystemd || skip 'tierd is built without libsystemd'
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'
unshare --mount --propagation private mount -t tmpfs none /run 2>/dev/null || skip 'no mount namespace can be made here'

root=$(cd "$(dirname "$0")/../.." && pwd)
for id in $(grep -oE '"[0-9a-f]{32}"' "$root/daemon/telemetry/events.c" | tr -d '"'); do
	grep -q "$id" "$root/docs/administration.md" || fail "administration.md lacks the MESSAGE_ID $id"
done
mkdir "$scratch/run"
chmod 755 "$scratch" "$scratch/run"
cat >"$scratch/play" <<'END'
mount -t tmpfs none /run
exec "$@"
END
tierd_log=$scratch/stderr
SCRATCH=$scratch timeout "$patience" unshare --mount --propagation private sh "$scratch/play" \
	python3 "$(dirname "$0")/journal.py" "$1" "$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" \
	--host-budget 64M --workers 1 --file-system memory --nvme "$nvme:1G" --fault complete:write:5:EIO || fail 'see above'
