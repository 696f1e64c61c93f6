#!/bin/sh
# "doctor": what this machine has and lacks, with and without a daemon. What a machine lacks is taken from it here.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
PATH=$scratch/programs:$(dirname "$TIERD"):$PATH
conf=$scratch/tierd.conf
mkdir "$scratch/programs"
printf '[daemon]\nsocket = %s/s\nstate_directory = %s/d\n[memory]\nhost_budget = 64M\n[limits]\nconnections = 9\n' \
	"$scratch" "$scratch" >"$scratch/base.conf"
{
	cat "$scratch/base.conf"
	printf '[nvme]\npath = %s:64M\n' "$nvme"
} >"$conf"

# How fast a disk is takes a second to find out, and much of the disk: that is asked for once.
quick=--quick
# The doctor's word on each thing, as "is": of(WHAT) is the finding; the exit status must be what they say.
doctor() { # EXPRESSION COMMAND…
	expression=$1
	shift
	actual=0
	# shellcheck disable=SC2086 # nothing, or a flag
	"$@" $quick --json >"$scratch/json" || actual=$?
	python3 - "$scratch/json" "$expression" "$actual" <<'EOF' || fail "$*: not $expression"
import json, sys

answer = json.load(open(sys.argv[1]))
findings = answer["findings"]
for finding in findings:
    assert finding["what"] and finding["text"], finding
    assert finding["finding"] in ("found", "poor", "missing", "unknown"), finding
    assert finding["finding"] != "missing" or finding["remedy"], finding
is_well = all(finding["finding"] != "missing" for finding in findings)
assert answer["is_well"] == is_well and int(sys.argv[3]) == (0 if is_well else 1), sys.argv[3]

def of(what):
    [finding] = [finding for finding in findings if finding["what"] == what]
    return finding

assert eval(sys.argv[2]), findings
EOF
}

every_check='{"tierd", "configuration", "io_uring", "huge pages", "memlock", "LimitNOFILE", "file system", "reservation", "O_DIRECT",
	"ReadWritePaths", "GPU"} <= {finding["what"] for finding in findings}'
doctor "$every_check" "$TIERCTL" doctor "$conf"
doctor 'of("tierd")["finding"] == "poor" and "no tierd listens" in of("tierd")["text"]' "$TIERCTL" doctor "$conf"
doctor "of('file system')['text'].startswith('$nvme: ')" "$TIERCTL" doctor "$conf"
expect_status 2 "$TIERCTL" doctor one two

# What is wrong with the configuration comes from tierd.
printf '[limits]\nconnections = many\n' >"$scratch/bad.conf"
doctor 'of("configuration")["finding"] == "missing" and "many" in of("configuration")["text"]' \
	"$TIERCTL" doctor "$scratch/bad.conf"
doctor 'of("NVMe path")["finding"] == "poor"' "$TIERCTL" doctor "$scratch/base.conf"
# A tierctl that was built and not installed finds the tierd that was built with it; one that is alone finds none.
doctor 'of("configuration")["finding"] != "unknown"' env PATH=/none XDG_CONFIG_HOME="$scratch" "$TIERCTL" doctor "$conf"
cp "$TIERCTL" "$scratch/tierctl"
doctor 'of("configuration")["finding"] == "unknown"' env PATH=/none XDG_CONFIG_HOME="$scratch" "$scratch/tierctl" doctor "$conf"

# Nine connections may take 136 descriptors.
limited() { # LIMIT COMMAND…
	# shellcheck disable=SC3045 # dash has it
	(ulimit "$1" "$2" && shift 2 && "$@")
}
doctor 'of("LimitNOFILE")["finding"] == "found"' limited -n 136 "$TIERCTL" doctor "$scratch/base.conf"
doctor 'of("LimitNOFILE")["finding"] == "missing" and "135 descriptors" in of("LimitNOFILE")["text"]' \
	limited -n 135 "$TIERCTL" doctor "$scratch/base.conf"
without_capability() {
	if [ "$(id -u)" -eq 0 ]; then setpriv --bounding-set=-ipc_lock "$@"; else "$@"; fi
}
doctor 'of("memlock")["finding"] == "missing" and "64.0 KiB may be pinned" in of("memlock")["text"]' \
	limited -l 64 without_capability "$TIERCTL" doctor "$scratch/base.conf"

# Memory is no disk.
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && shm=$(mktemp -d /dev/shm/tierd-test-XXXXXX); then
	sed "s|^path = .*|path = $shm:64M|" "$conf" >"$scratch/shm.conf"
	doctor 'of("file system")["finding"] == "missing" and "is memory" in of("file system")["text"]' \
		"$TIERCTL" doctor "$scratch/shm.conf"
	rmdir "$shm" || fail 'the doctor leaves files behind'
fi

# What systemd would say of the service, where there is none.
systemctl_says() {
	printf '#!/bin/sh\nprintf "%%s\\n" LoadState=loaded MainPID=0 %s\n' "$*" >"$scratch/programs/systemctl"
	chmod +x "$scratch/programs/systemctl"
}
# It quotes names that have blanks.
systemctl_says ProtectSystem=strict "'ReadWritePaths=-/none \"-$nvme/tierd/\"'" LimitNOFILE=65536 LimitMEMLOCK=infinity
doctor 'of("ReadWritePaths")["finding"] == of("LimitNOFILE")["finding"] == of("memlock")["finding"] == "found"' \
	limited -n 135 "$TIERCTL" doctor "$conf"
systemctl_says ProtectSystem=strict "'ReadWritePaths=\"$nvme/tierd-other\"'" LimitNOFILE=100 LimitMEMLOCK=65536
doctor 'of("ReadWritePaths")["finding"] == of("LimitNOFILE")["finding"] == of("memlock")["finding"] == "missing"' \
	"$TIERCTL" doctor "$conf"
doctor 'all("[Service]" in of(what)["remedy"] for what in ("LimitNOFILE", "memlock"))' "$TIERCTL" doctor "$conf"
doctor 'of("tierd")["remedy"] == "systemctl start tierd"' "$TIERCTL" doctor "$conf"
doctor "of('ReadWritePaths')['remedy'].endswith('ReadWritePaths=\"$nvme/tierd\"')" "$TIERCTL" doctor "$conf"
rm "$scratch/programs/systemctl"
doctor "of('tierd')['remedy'].startswith('tierd --socket $TIERD_SOCKET')" "$TIERCTL" doctor "$conf"

# With a daemon: its own word, and its own limits.
tierd_start
doctor "$every_check" "$TIERCTL" doctor "$conf"
doctor "of('tierd')['finding'] == 'found' and 'pid $tierd_pid' in of('tierd')['text']" "$TIERCTL" doctor "$conf"
prlimit --pid "$tierd_pid" --nofile=135
doctor 'of("LimitNOFILE")["finding"] == "missing" and "of the running tierd" in of("LimitNOFILE")["text"]' \
	"$TIERCTL" doctor "$conf"
if [ "$("$TIERCTL" --json tiers | python3 -c 'import json, sys; print(json.load(sys.stdin)["nvme"][0]["is_direct"])')" = True ]; then
	doctor 'of("O_DIRECT")["finding"] == "found"' "$TIERCTL" doctor "$conf"
	quick=
	doctor 'min(of("disk speed")[d + "_bytes_per_second"] for d in ("read", "written")) > 0' "$TIERCTL" doctor "$conf"
	quick=--quick
	doctor 'all(finding["what"] != "disk speed" for finding in findings)' "$TIERCTL" doctor "$conf"
fi
# One that is stuck needs another remedy than one that was not started: by who has started it, and with what becomes of its jobs.
stuck() { # EXPRESSION
	"$TIERCTL" metrics >"$scratch/metrics" || fail 'the daemon does not answer'
	kill -STOP "$tierd_pid"
	doctor "of('tierd')['finding'] == 'missing' and $1" "$TIERCTL" doctor "$conf"
	kill -CONT "$tierd_pid"
}
import_one() { # NAME DURABILITY
	python3 -c 'import struct, sys
header = b"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + b"1")' "$scratch/one"
	"$TIERCTL" import "$1" "$scratch/one" --durability "$2" >"$scratch/imported" || fail "importing $1"
}
import_one first step
import_one second step
stuck "'kill -KILL $tierd_pid, and starting it again as it was ends that: all of its jobs (2) are durable' in of('tierd')['remedy']"
import_one third none
systemctl_says "MainPID=$tierd_pid" ProtectSystem=strict LimitNOFILE=65536 LimitMEMLOCK=infinity
stuck "'systemctl restart tierd ends that: of its 3 jobs 2 are durable and come back at the last durable step; the other (1) loses what it has' in of('tierd')['remedy']"
rm "$scratch/programs/systemctl"

# Another user cannot connect to one that was started by hand, and no group helps.
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups true 2>/dev/null; then
	cp "$TIERCTL" "$scratch/tierctl"
	chmod 0755 "$scratch" "$scratch/tierctl"
	doctor 'of("tierd")["finding"] == "unknown" and of("tierd")["remedy"].startswith("run it as root, who has started that tierd") and "it is for its owner" in of("tierd")["text"]' \
		setpriv --reuid 65534 --regid 65534 --clear-groups "$scratch/tierctl" doctor
	doctor 'of("O_DIRECT")["remedy"] == "run it as root"' \
		setpriv --reuid 65534 --clear-groups "$scratch/tierctl" doctor
	chmod 0700 "$scratch"
else
	echo 'another user is skipped: not root, or no setpriv'
fi
[ -z "$(find "$nvme" -name '.doctor*')" ] || fail 'the doctor leaves files behind'
"$TIERCTL" doctor --quick "$conf" >"$scratch/table" || true
grep -q '^ *remedy: .*ulimit -n' "$scratch/table" || fail "no remedy: $(cat "$scratch/table")"
tierd_stop

tierd_start --io-engine plain --direct-io off
doctor 'of("io_uring")["finding"] == "missing" and "switched off" in of("io_uring")["text"]' "$TIERCTL" doctor "$conf"
doctor 'of("O_DIRECT")["finding"] == "missing"' "$TIERCTL" doctor "$conf"
tierd_stop
