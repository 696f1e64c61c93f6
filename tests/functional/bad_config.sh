#!/bin/sh
# A configuration that is wrong ends the daemon with 2 and says where, what, and what is allowed.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

conf=$scratch/tierd.conf

refuses() { # CONTENT TEXT…
	printf '%b' "$1" >"$conf"
	shift
	expect_status 2 "$TIERD" --config "$conf" --check-config
	for text; do
		expect_text "$text"
	done
}

refuses '[memory]\nhost_budget = lots\n' "$conf:2:" host_budget "'lots'" 'a size from 1M'
refuses '[memory]\nhost_budget = 99999999999999999999G\n' "$conf:2:" '99999999999999999999G'
refuses '[io]\n\nengine = aio\n' "$conf:3:" "'aio'" 'one of auto, io_uring, plain'
refuses '[daemon]\nworkers = 0\n' "$conf:2:" 'a number from 1 to'
refuses '[daemon]\nwerkers = 1\n' "$conf:2:" "unknown key 'werkers'" workers
refuses '[deamon]\nworkers = 1\n' "$conf:2:" 'unknown section [deamon]'
refuses 'nonsense\n' "$conf:1:"
refuses "[nvme]\npath = $scratch/missing:1G\n" missing 'create the folder'
refuses "[nvme]\npath = $nvme\n" 'FOLDER:SIZE'
refuses "[nvme]\npath = $nvme:1G\npath = $nvme/:1G\n" 'same folder'
refuses '[limits]\noutput_queue = 2G\n' 'from 1M to 1G, such as 8M'
refuses '[daemon]\nworkers = 1\n\nworkers = 2\n' "$conf:4:" 'workers is in line 2 already'
refuses 'workers = 1\n' "$conf:1:" "'workers' stands before the first [section]" 'limits, testing'
refuses '[testing]\nfault = nonsense\n' '"nonsense" is no fault; an example is'
refuses "[daemon]\nsocket = /$(printf '%0120d' 0)\n" 'longer than 107 bytes'

expect_status 2 "$TIERD" --config "$scratch/none.conf"
expect_text none.conf
expect_status 2 "$TIERD" --workers
expect_text 'needs a value'
expect_status 2 "$TIERD" --frobnicate
expect_text frobnicate
expect_status 2 "$TIERD" --host-budget 1Q
expect_text '--host-budget'

# A mark at the beginning, comments and small letters are no harm; what exceeds the machine is warned of.
printf '\357\273\277[memory]\nhost_budget = 900t # most\n[nvme]\npath = %s:900T ; all\n[limits]\nconnections = 65536\n' "$nvme" >"$conf"
expect_status 0 sh -c 'ulimit -n 1000; exec "$@"' sh "$TIERD" --config "$conf" --check-config
expect_text 'host_budget = 900T is more than the memory that there is'
expect_text "NVMe path $nvme: 900T is more than its disk has"
expect_text 'connections = 65536 may take 524352 descriptors, and RLIMIT_NOFILE allows 1000'
printf '[limits]\nconnections = 9\nconnections_per_user = 9\n' >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config
expect_text 'connections_per_user = 9 lets one user take all 9 connections'
# What has no room for any job, too.
printf '[memory]\nhost_budget = 11M\n' >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config
expect_text "host_budget = 11M has no room for a job, however small: the daemon's own buffers take 9M; give it 12M at least"
printf '[memory]\nhost_budget = 12M\n' >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config
case $output in
*warning*) fail "a warning without a reason: $output" ;;
esac
printf '# all\n[memory]\nhost_budget = 64M\n' >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config
case $output in
*warning*) fail "a warning without a reason: $output" ;;
esac

# What is in effect can be read back, and flags win.
printf '[daemon]\nworkers = 3\n[nvme]\npath = %s:2G\n' "$nvme" >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config --socket /run/a --state-dir /var/a --workers 4
expect_text 'workers = 4'
expect_text "path = $nvme:2G"
first=$output
echo "$output" >"$conf"
expect_status 0 "$TIERD" --config "$conf" --check-config
[ "$output" = "$first" ] || fail "what is printed is not what is read back: $output"
