#!/bin/sh
# File systems that break a reservation, or are memory, are refused, unless they are allowed, and the doctor names them. In a mount namespace of its own.
# shellcheck source=tests/functional/lib.sh disable=SC2119
if [ -z "${IN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	exec unshare --mount env IN_NAMESPACE=1 sh "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
use_gpt "$1"
disk=$scratch/disk
mkdir "$disk"

mount_disk() { # TYPE SIZE
	rm -f "$nvme/image"
	truncate -s "$2" "$nvme/image"
	"mkfs.$1" -q "$nvme/image" >/dev/null 2>&1 && mount -o loop "$nvme/image" "$disk" 2>/dev/null
}

start() {
	: >"$tierd_log"
	tierd_start --nvme "$disk:1G" "$@"
}

[ -n "${IN_NAMESPACE:-}" ] || skip 'mounting is not allowed here'

refuse() { # WHY KEY FLAG…
	why=$1 value=$2
	shift 2
	expect_status 1 timeout "$patience" "$TIERD" --socket "$scratch/refused/tierd.sock" --state-dir "$scratch/refused-state" \
		--host-budget 64M --nvme "$disk:1G" "$@"
	expect_text "$disk cannot be used: it is on $why"
	expect_text "set file_system = $value in [nvme]"
}

says() { # FINDING WHAT CONFIGURATION
	printf '[daemon]\nsocket = %s/s\nstate_directory = %s/d\n[nvme]\npath = %s:1G\n%s\n' "$scratch" "$scratch" "$disk" "$3" >"$scratch/conf"
	"$TIERCTL" --json doctor "$scratch/conf" >"$scratch/doctor" || true
	python3 -c 'import json, sys
findings = [f for f in json.load(open(sys.argv[1]))["findings"] if f["what"] == sys.argv[3]]
assert [f["finding"] for f in findings] == [sys.argv[2]], findings' "$scratch/doctor" "$1" "$2" || fail "the doctor says: $(cat "$scratch/doctor")"
}

# ---- Memory: not where jobs that break a reservation are allowed, either

trap 'status=$?; set +e; [ -z "$tierd_pid" ] || kill -KILL "$tierd_pid"; umount -lq "$disk"; (exit $status); clean_up' EXIT
mount -t tmpfs -o size=64M none "$disk"
for flag in '' --file-system=reserving --file-system=any; do
	refuse 'tmpfs, which is memory, and no disk: what lies there ends with the machine, so no job is durable there' memory \
		${flag:+"$flag"}
done
says missing 'file system' ''
says found reservation ''
start --file-system memory
grep -q "$disk is on tmpfs, which is memory" "$tierd_log" || fail "the log says: $(cat "$tierd_log")"
tierd_stop
umount "$disk"

# ---- Btrfs
command -v mkfs.btrfs >/dev/null || skip 'btrfs-progs is not installed'
mount_disk btrfs 200M || skip 'btrfs cannot be mounted here'
refuse 'btrfs, where what is written goes to new places' any
refuse 'btrfs, where what is written goes to new places' any --file-system reserving
says missing reservation ''
says poor reservation 'file_system = any'

# ---- Allowed

start --file-system any
grep -q "$disk is on btrfs, where what is written goes to new places" "$tierd_log" || fail "the log says: $(cat "$tierd_log")"
expect_status 0 run_gpt --steps 3
"$TIERCTL" drop gpt --yes
tierd_stop

# ---- Made to keep it

if command -v chattr >/dev/null; then
	rm -rf "$disk/tierd"
	mkdir "$disk/tierd"
	chattr +C "$disk/tierd"
	start --file-system reserving
	expect_status 0 run_gpt --steps 3
	tierd_stop
	says found reservation ''
fi
