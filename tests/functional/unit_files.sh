#!/bin/sh
# What systemd itself says of the unit files, the user and the folders that an installation gets.
# usage: unit_files.sh SERVICE SOCKET SYSUSERS TMPFILES
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
service=$1 socket=$2 sysusers=$3 tmpfiles=$4

root=$(dirname "$0")/../..

for tool in systemd-analyze systemd-sysusers systemd-tmpfiles; do
	command -v $tool >/dev/null || skip "$tool is not installed"
done
systemd-analyze --help | grep -q -- --offline || skip 'this systemd-analyze cannot judge a unit that is not loaded'

# Nothing is installed, so the programs are where they were built.
mkdir "$scratch/units"
sed "s|^ExecStart=.*|ExecStart=\"$TIERD\"|; s|^ExecStop=-.*/tierctl |ExecStop=-\"$TIERCTL\" |" "$service" >"$scratch/units/tierd.service"
cp "$socket" "$scratch/units"
expect_status 0 systemd-analyze verify --man=no "$scratch/units/tierd.service" "$scratch/units/tierd.socket"
[ -z "$output" ] || fail "systemd-analyze verify: $output"

exposure() {
	systemd-analyze security --no-pager --offline=true --threshold=17 "$scratch/units/tierd.service" >"$scratch/exposure" 2>&1
}
exposure || fail "the unit is exposed by more than 1.7: $(tail -1 "$scratch/exposure")"
tail -1 "$scratch/exposure"

# What a machine with GPUs adds.
mkdir "$scratch/units/tierd.service.d"
sed -n '/^...ini$/,/^...$/{/^...ini$/d; /^...$/d; p}' "$root/docs/gpu.md" >"$scratch/units/tierd.service.d/gpu.conf"
expect_status 0 systemd-analyze verify --man=no "$scratch/units/tierd.service"
[ -z "$output" ] || fail "systemd-analyze verify, with docs/gpu.md's drop-in: $output"
exposure || fail "with docs/gpu.md's drop-in the unit is exposed by more than 1.7: $(tail -1 "$scratch/exposure")"
tail -1 "$scratch/exposure"
rm -r "$scratch/units/tierd.service.d"
sed -i '/^SystemCallFilter=/d; /^Restrict/d' "$scratch/units/tierd.service"
! exposure || fail 'without its filters the unit is as safe as with them?'

root=$scratch/root
mkdir "$root" "$root/etc" "$root/run" "$root/var" "$root/var/lib"
expect_status 0 systemd-sysusers --root="$root" "$sysusers"
grep -q '^tierd:x:[0-9]*:[0-9]*:Training state daemon:/var/lib/tierd:/usr/sbin/nologin$' "$root/etc/passwd" ||
	fail "not the user that the unit needs: $(cat "$root/etc/passwd")"
grep -q '^tierd:x:[0-9]*:$' "$root/etc/group" || fail 'no group tierd'

[ "$(id -u)" -eq 0 ] || skip 'only root can give the folders to the user; the rest is right'
uid=$(sed -n 's/^tierd:x:\([0-9]*\):.*/\1/p' "$root/etc/passwd")
gid=$(sed -n 's/^tierd:x:\([0-9]*\):.*/\1/p' "$root/etc/group")
expect_status 0 systemd-tmpfiles --root="$root" --create "$tmpfiles"
for folder in 'run/tierd 750' 'var/lib/tierd 700'; do
	actual=$(stat -c '%u %g %a' "$root/${folder% *}")
	[ "$actual" = "$uid $gid ${folder#* }" ] || fail "$folder: $actual"
done
