#!/bin/sh
# Three NVMe paths give the same bits as one, and each gets its share; a path that is too small or too full is
# named; one that is missing, or there twice, is refused at start.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
use_gpt "$1"

# The first path is $nvme; the daemon keeps to a folder of its own in each.
two=$nvme/two three=$nvme/three
mkdir "$two" "$three"

start_three() { # [CAPACITY]: of the second path
	tierd_start --nvme "$two:${1:-1G}" --nvme "$three:1G"
}

stop() {
	tierd_stop
	forget_jobs
}

# Two ranks, and layers that are packs by themselves: each of their streams is several extents long.
gpt_flags='--layers 3 --width 384 --heads 4 --steps 4 --ranks 2'

train_there() { # [FLAG…]
	train --stage 3 --parameters-on nvme --optimizer-on nvme --mode replace "$@"
}

# The least that tierd takes, so that layers have to come back from NVMe.
least_budget() {
	expect_status 1 run_gpt --stage 3 --host-budget 1M
	budget=$(echo "$output" | sed -n 's/.*needs at least \([0-9]*\).*MiB of host memory.*/\1/p' | head -n 1)
	[ -n "$budget" ] || fail "the least budget is not named: $output"
	budget=$((budget + 1))M
}

# ---- The same bits, evenly spread

# What it says about the paths, and the files of each, of state and of sums: its size, its blocks, and what was ever written to it.
# Blocks that are reserved only count as holes.
look() { # FILE
	"$TIERCTL" --json tiers >"$scratch/tiers"
	python3 - "$scratch/tiers" >"$1" <<-'END' || fail 'the paths cannot be looked at'
		import glob, json, os, sys

		def written(fd, size):
		    total = at = 0
		    while at < size:
		        try:
		            at = os.lseek(fd, at, os.SEEK_DATA)
		        except OSError:
		            break
		        end = os.lseek(fd, at, os.SEEK_HOLE)
		        total += end - at
		        at = end
		    return total

		for path in json.load(open(sys.argv[1]))["nvme"]:
		    sums = [0, 0, 0]
		    [state] = glob.glob(path["path"] + "/tierd/*/*.store")
		    for name in [state] + glob.glob(path["path"] + "/tierd/*/*.sums"):
		        fd = os.open(name, os.O_RDONLY)
		        status = os.fstat(fd)
		        for i, n in enumerate((status.st_size, 512 * status.st_blocks, written(fd, status.st_size))):
		            sums[i] += n
		    print(path["used_bytes"], *sums)
	END
}

expect_even() { # FILE-OF-ONE FILE-OF-THREE STATE-BYTES
	python3 - "$@" <<-'END' || fail "the shares are not alike: $(cat "$2")"
		import sys

		[one], three = ([[int(n) for n in line.split()] for line in open(name)] for name in sys.argv[1:3])
		assert len(three) == 3
		for used, size, blocks, written in [one] + three:
		    assert size == used <= blocks <= used + (1 << 20)
		    assert 0 < written <= size
		for column in range(4):
		    shares = [path[column] for path in three]
		    assert max(shares) <= 1.25 * min(shares), column
		for used, size, blocks, written in three:
		    assert one[0] / 3 <= used <= one[0] / 3 + (16 << 20)
		    assert written >= int(sys.argv[3]) / 3
	END
}

tierd_start
least_budget
train_there --host-budget "$budget" --dump "$scratch/one"
look "$scratch/shares-of-one"
stop

start_three
train_there --host-budget "$budget" --dump "$scratch/three"
expect_status 0 "$TIERCTL" tiers
expect_text "$two"
expect_text "$three"
# Each is asked for its share, and what was moved is not forgotten with the job.
all_have_moved='len(j["nvme"]) == 3 and all(p["read_bytes"] > 0 and p["written_bytes"] > 0 for p in j["nvme"])'
json "$all_have_moved" tiers
# Not all layers fit: some lie on NVMe alone.
expect_status 0 "$TIERCTL" units gpt
expect_text ' nvme '
look "$scratch/shares"
train_there --parameters-on host --optimizer-on host --steps 1
json "$all_have_moved" tiers
stop
cmp "$scratch/one" "$scratch/three" || fail 'three paths give other bits than one'

train --no-tierd --dump "$scratch/plain"
cmp "$scratch/plain" "$scratch/three" || fail 'three paths give other bits than plain memory'
# Of each parameter the dump has 14 bytes, the stores 12.
expect_even "$scratch/shares-of-one" "$scratch/shares" $(($(wc -c <"$scratch/plain") * 12 / 14))

# ---- One of them is too small

used_bytes() { # of the paths; the first number is host memory
	"$TIERCTL" --json tiers | sed -n 's/.*"used_bytes":[^0-9]*\([0-9]*\).*/\1/p' | tail -n +2
}

only_three_are_there() {
	[ "$(find "$nvme" -name '*.store' | wc -l)" -eq 3 ] &&
		[ "$(find "$nvme" -name '*.store' -printf '%s\n')" = "$(used_bytes)" ]
}

# Nothing stays behind, and what fits is trained.
is_refused() { # TEXT…
	expect_status 1 run_gpt --stage 3 --job large
	for text; do
		expect_text "$text"
	done
	train_there --job small --layers 1 --width 32 --steps 1
	await only_three_are_there || fail "the refused job has left something: $(
		"$TIERCTL" tiers
		find "$nvme" -name '*.store'
	)"
}

start_three 20M
is_refused "it needs 68.0 MiB on $two (twice its state" 'and 20.0 MiB are left there'
stop

# The file system is smaller than the capacity that the daemon was told.
if mount -t tmpfs -o size=24M none "$two" 2>/dev/null; then
	trap 'status=$?; set +e; kill -KILL "$tierd_pid" 2>/dev/null; umount -l "$two"; (exit $status); clean_up' EXIT
	start_three
	is_refused "it needs 68.0 MiB in $two, and 23.9 MiB are left on that disk"
	stop
	umount "$two"
	trap clean_up EXIT
else
	echo 'the full disk is skipped: mounting is not allowed here'
fi

# ---- One of them is none

does_not_start() { # STATUS TEXT FLAG…
	status=$1 text=$2
	shift 2
	expect_status "$status" timeout "$patience" "$TIERD" --socket "$scratch/refused/tierd.sock" \
		--state-dir "$scratch/refused-state" --host-budget 64M "$@"
	expect_text "$text"
	[ ! -e "$scratch/refused/tierd.sock" ] || fail "a socket is left after '$*'"
}

ln -s "$nvme" "$scratch/link"
ln -s two "$nvme/link"
ln -s missing "$nvme/dangling"
touch "$nvme/file"
does_not_start 2 "NVMe path $nvme/missing: No such file or directory; create the folder first" \
	--nvme "$two:1G" --nvme "$nvme/missing:1G" --nvme "$three:1G"
does_not_start 2 "NVMe path $nvme/dangling: No such file or directory" --nvme "$two:1G" --nvme "$nvme/dangling:1G"
does_not_start 2 "NVMe path $nvme/file is not a folder" --nvme "$nvme/file:1G"
does_not_start 2 "NVMe path $two is the same folder as $two" --nvme "$two:1G" --nvme "$three:1G" --nvme "$two:1G"
does_not_start 2 "NVMe path $nvme/link is the same folder as $two" \
	--nvme "$two:1G" --nvme "$three:1G" --nvme "$nvme/link:1G"
does_not_start 2 "NVMe path $scratch/link/two/../two/ is the same folder as $two" \
	--nvme "$two:1G" --nvme "$scratch/link/two/../two/:1G"

# Nor does one daemon take what another has, by whatever name.
start_three
does_not_start 1 "$scratch/link/three is in use by another tierd" --nvme "$scratch/link/three:1G"
stop

# The folder in it is the daemon's own, not a way to somewhere else.
rm -rf "$two/tierd"
ln -s "$three/tierd" "$two/tierd"
does_not_start 1 "$two cannot be used" --nvme "$three:1G" --nvme "$two:1G"
