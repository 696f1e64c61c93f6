#!/bin/sh
# What pip makes of this tree: a whole archive of sources, a wheel of that, and an environment in which package and programs
# work without anything of a build folder.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${TIERD_PYTHON_NEWEST:-}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

[ -x "$python" ] || { echo 'skipped: there is no environment with meson-python; ./run test python makes it'; exit 77; }
command -v git >/dev/null || { echo 'skipped: git is not installed'; exit 77; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/tierd-wheel-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# What it is tried with is what it brings.
unset PYTHONPATH TIERD TIERCTL TIERD_SOCKET

# An archive has what git has: here, all that is in the tree.
mkdir "$scratch/source" "$scratch/home"
tar -C "$root" --exclude='./build*' --exclude=./.git --exclude=__pycache__ -cf - . | tar -C "$scratch/source" -xf -
cd "$scratch/source"
export HOME="$scratch/home" GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test
git init --quiet
git add --all
git commit --quiet --message=all

# With the options of ./run build, nearly all was compiled already.
PATH=$(dirname "$python"):$PATH "$python" -m build --no-isolation --outdir "$scratch/dist" \
	-Csetup-args=-Dbuildtype=release -Csetup-args=-Ddebug=true -Csetup-args=-Dwerror=true >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
wheel=$(echo "$scratch"/dist/tierd-*-cp3*-abi3-linux_*.whl)
[ -f "$wheel" ] || fail "another wheel: $(ls "$scratch/dist")"
rm -rf "$scratch/source"
cd "$scratch"

python3 -m venv bare
bare/bin/python -m pip install --quiet --no-index --disable-pip-version-check "$wheel"
version=$(bare/bin/python -c 'import tierd; print(tierd.__version__)') || fail 'the package cannot be imported'
for program in tierd tierctl; do
	said=$("bare/bin/$program" --version)
	[ "$said" = "$program $version" ] || fail "$program $version says: $said"
done
bare/bin/python -c '
import tierd
maps = open("/proc/self/maps").read().split()
loaded = {path for path in maps if "/libtierd" in path}
if len(loaded) != 1 or "/bare/lib/" not in loaded.pop():
    raise SystemExit("FAILED: the library is not that of the wheel")
'
# What needs the daemon finds it.
found=$(PATH=/usr/bin:/bin bare/bin/python -c 'import tierd.daemon; print(tierd.daemon.program())')
[ "$found" = "$scratch/bare/bin/tierd" ] || fail "the package takes $found for its daemon"
PATH=/usr/bin:/bin bare/bin/tierctl plan --layers 2 --width 64 --world-size 2 >/dev/null || fail 'it does not plan'
installed=$(cd bare/lib/python3*/site-packages && find tierd -type f ! -path '*/__pycache__/*' | sort)
expected=$( (cd "$root/client/python" && find tierd -name '*.py' -o -name '*.pyi' -o -name py.typed; echo tierd/_core.abi3.so) | sort)
[ "$installed" = "$expected" ] || fail "the wheel has $installed, not $expected"
