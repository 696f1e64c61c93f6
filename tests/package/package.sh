#!/bin/sh
# The Debian packages build, and install, work, remove and purge in a copy of this machine.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

for tool in dpkg-buildpackage dh; do
	command -v $tool >/dev/null || { echo "skipped: $tool is not installed (dpkg-dev, debhelper)"; exit 77; }
done

# The one that is tried is where the packages put it.
unset TIERD_SOCKET
scratch=$(mktemp -d "${TMPDIR:-/tmp}/tierd-package-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# With the options of ./run build, nearly all was compiled already. ./run package has those of packages.
DEB_CFLAGS_SET=' ' DEB_CPPFLAGS_SET=' ' TIERD_MESON_OPTIONS='-Doptimization=3 -Ddebug=true'
DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)"
export DEB_CFLAGS_SET DEB_CPPFLAGS_SET TIERD_MESON_OPTIONS DEB_BUILD_OPTIONS
"$here/build" "$scratch/packages" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
grep -q 'dpkg-gensymbols: warning' "$scratch/log" && { grep -A20 'dpkg-gensymbols: warning' "$scratch/log"; exit 1; }

# There is no systemd in the copy of the machine to see it.
dpkg-deb --control "$scratch/packages"/tierd_*.deb "$scratch/control"
if grep -q restart "$scratch/control/postinst" || ! grep -q '= remove .*/run/systemd' "$scratch/control/prerm"; then
	echo 'FAILED: an upgrade ends the daemon, and its jobs with it' >&2
	exit 1
fi

mkdir "$scratch/machine"
cp "$scratch/packages"/*.deb "$here/life" "$scratch/machine"
"$here/machine" "$scratch/machine" /mnt/life /mnt dpkg --install
