#!/bin/sh
# 1,000 connections that say nothing keep nobody from being answered, and cost nothing when they are gone.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not installed'
python3 -c 'import resource, sys; sys.exit(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1100)' ||
	skip 'fewer than 1,100 descriptors are allowed'

# An hour: what ends the silent ones here is the need for their places.
tierd_start --first-frame-seconds 3600 --max-connections 256 --connections-per-user 1000
before=$(open_descriptors)
python3 "$(dirname "$0")/idle_clients.py" 1000 || fail 'a client was not answered'
await_descriptors "$before"

# Nor do they fill the log.
[ "$(wc -l <"$tierd_log")" -lt 60 ] || fail "the log has $(wc -l <"$tierd_log") lines"
grep -q 'more lines about users and their jobs follow' "$tierd_log" || fail 'the log does not say that lines are left out'

# As many connections that did say hello are refused with a reason.
expect_status 0 python3 "$(dirname "$0")/idle_clients.py" --greet 257
expect_text 'all connections (256) are in use'
expect_status 0 "$TIERCTL" ping
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
