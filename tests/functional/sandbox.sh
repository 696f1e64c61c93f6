#!/bin/sh
# Under the restrictions of the unit file, as far as they can be had without systemd: what is forbidden fails, and tierd
# works: it starts as its own user with the unit's own command line, trains on an NVMe path, reloads and ends.
# usage: sandbox.sh UNIT GPT SANDBOX PROBE
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
unit=$1 gpt=$2 sandbox=$3 probe=$4

command -v systemd-analyze >/dev/null || skip 'systemd-analyze is not installed'
[ "$(id -u)" -eq 0 ] || skip 'only root can make the namespaces of the sandbox'
"$probe" --ring || skip 'the kernel here has no io_uring for us'
ldd "$TIERD" | grep -q libsystemd || skip 'tierd is built without libsystemd'

# A machine on which tierd is installed, with a user of its own and an NVMe path.
uid=64321 stranger=64322
mkdir "$scratch/etc" "$scratch/etc/tierd" "$scratch/run" "$scratch/lib" "$scratch/mnt" "$scratch/mnt/nvme0" \
	"$scratch/sbin" "$scratch/bin"
chmod 755 "$scratch" "$nvme"
chmod 777 "$scratch/etc" "$scratch/mnt"
cp -r /etc/ld.so.* "$scratch/etc"
grep -v '^tierd:' /etc/passwd >"$scratch/etc/passwd"
grep -v '^tierd:' /etc/group >"$scratch/etc/group"
echo "tierd:x:$uid:$uid::/var/lib/tierd:/usr/sbin/nologin" >>"$scratch/etc/passwd"
echo "tierd:x:$uid:" >>"$scratch/etc/group"
printf '[memory]\nhost_budget = 256M\n[nvme]\npath = /mnt/nvme0:1G\n[io]\nengine = io_uring\n' >"$scratch/etc/tierd/tierd.conf"
install -d -o $uid -g $uid -m 0700 "$nvme/tierd"
printf '[Service]\nReadWritePaths=/mnt/nvme0/tierd\n' >"$scratch/nvme.conf"
cp "$TIERD" "$probe" "$scratch/sbin"
command=$(sed -n 's/^ExecStart=//p' "$unit")

# LeakSanitizer would have to trace the process, which the sandbox forbids.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
set -- "$sandbox" --unit "$unit" --unit "$scratch/nvme.conf" --bind "$scratch/etc:/etc" --bind "$scratch/run:/run" \
	--bind "$scratch/lib:/var/lib" --bind "$scratch/mnt:/mnt" --bind "$nvme:/mnt/nvme0" \
	--bind "$scratch/sbin:$(dirname "$command")"

try() {
	"$@" -- "$(dirname "$command")/$(basename "$probe")" "$scratch" >"$scratch/out" 2>&1
}

status=0
try "$@" || status=$?
[ $status -ne 77 ] || { cat "$scratch/out"; exit 77; }
grep '^not applied' "$scratch/out" || true
[ $status -eq 0 ] || fail "in the sandbox: $(cat "$scratch/out")"

# Each directive is what makes its act fail: without it, the probe must notice.
without() {
	printf '[Service]\n%s\n' "$1" >"$scratch/less.conf"
	shift
	status=0
	try "$@" --unit "$scratch/less.conf" || status=$?
	if [ $status -ne 1 ] || ! grep -q "$expected" "$scratch/out"; then
		fail "with $(tail -1 "$scratch/less.conf") nothing could '$expected': $(cat "$scratch/out")"
	fi
}
while read -r less expected; do
	without "$less" "$@"
done <<'END'
ProtectSystem=no write to /etc
ProtectHome=no list /home
ProtectKernelTunables=no write to /proc/sys
PrivateTmp=no see the machine's /tmp
PrivateDevices=no open the kernel's log
PrivateNetwork=no see the network
RestrictAddressFamilies= open an internet socket
RestrictNamespaces=no make a namespace
MemoryDenyWriteExecute=no map writable code
RestrictSUIDSGID=no make a set-user-id file
RestrictRealtime=no become realtime
LockPersonality=no change the personality
SystemCallFilter= be traced
UMask=0022 let others read
CapabilityBoundingSet=~ be without capabilities
ReadWritePaths= write to the NVMe path
END

# What an administrator forgets is named at start.
refuses() {
	text=$1
	shift
	expect_status 1 timeout "$patience" "$@"
	expect_text "$text"
}
printf '[Service]\nReadWritePaths=\n' >"$scratch/less.conf"
refuses 'ReadWritePaths= has to name /mnt/nvme0/tierd' "$@" --unit "$scratch/less.conf"
chown 0:0 "$nvme/tierd"
refuses 'install -d -o tierd -m 0700 /mnt/nvme0/tierd' "$@"
chown $uid:$uid "$nvme/tierd"

# The service itself, and a trainer who is a member of its group.
cp "$gpt" "$here/../../docs/numerics.md" "$scratch/bin"
cp "$(ldd "$gpt" | sed -n 's/.*=> \(.*libtierd[^ ]*\).*/\1/p')" "$scratch/bin"
SCRATCH=$scratch LD_LIBRARY_PATH=$scratch/bin TIERD_SOCKET=$scratch/run/tierd/tierd.sock timeout "$patience" \
	python3 "$here/sandbox.py" "$scratch/bin/$(basename "$gpt")" $stranger:$uid "$@" || fail 'see above'
