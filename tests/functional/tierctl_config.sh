#!/bin/sh
# "config check": tierd's own judgement of a file, for people and for programs, without a running daemon.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
PATH=$(dirname "$TIERD"):$PATH
conf=$scratch/tierd.conf

json() { # EXPRESSION STATUS COMMAND…: evaluates it over the command's output
	expression=$1 status=$2
	shift 2
	actual=0
	"$TIERCTL" --json "$@" >"$scratch/json" || actual=$?
	[ "$actual" -eq "$status" ] || fail "tierctl --json $* exits with $actual"
	python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), j' \
		"$scratch/json" "$expression" || fail "tierctl --json $*: not $expression"
}

mkdir "$nvme/a" "$nvme/b"
printf '[memory]\nhost_budget = 512M\n[nvme]\npath = %s/a:1G\npath = %s/b:2G\n[limits]\nconnections = 7\nconnections_per_user = 6\n' \
	"$nvme" "$nvme" >"$conf"
printf '[daemon]\nsocket = %s/s\nstate_directory = %s/d\n' "$scratch" "$scratch" >>"$conf"
expect_status 0 "$TIERCTL" config check "$conf"
expect_text 'connections = 7'
expect_text "path = $nvme/b:2G"
# What is printed is a configuration with the same meaning.
"$TIERCTL" config check "$conf" >"$scratch/printed"
"$TIERCTL" config check "$scratch/printed" | cmp - "$scratch/printed" || fail 'it does not read back what it prints'
"$TIERD" --config "$conf" --check-config | cmp - "$scratch/printed" || fail 'tierd --check-config says something else'
json "j['is_valid'] and j['problems'] == []" 0 config check "$conf"
json "j['configuration']['nvme']['path'] == ['$nvme/a:1G', '$nvme/b:2G']" 0 config check "$conf"
json "j['configuration']['limits']['connections_per_user'] == '6'" 0 config check "$conf"

# What may be repeated is a list, however often it is there.
printf '[users]\nlimit = root host_maximum=1G\nlimit = * host_maximum=2G\n' >"$scratch/limits.conf"
json "j['configuration']['users']['limit'] == ['root host_maximum=1G', '* host_maximum=2G']" 0 \
	config check "$scratch/limits.conf"

# A warning makes it no less valid.
printf '[memory]\nhost_budget = 900T\n' >"$scratch/large.conf"
expect_status 0 env XDG_RUNTIME_DIR="$scratch" HOME="$scratch" "$TIERCTL" config check "$scratch/large.conf"
expect_text 'is more than the memory that there is'
json "j['is_valid'] and 'is more than the memory' in j['problems'][0]" 0 config check "$scratch/large.conf"

printf '[limits]\nconnections = many\n' >"$scratch/bad.conf"
expect_status 1 "$TIERCTL" config check "$scratch/bad.conf"
expect_text "tierctl: $scratch/bad.conf:2:"
expect_text "'many'"
json "not j['is_valid'] and 'bad.conf:2:' in j['problems'][0]" 1 config check "$scratch/bad.conf"
expect_status 1 "$TIERCTL" config check "$scratch/none.conf"
expect_text none.conf
json "not j['is_valid']" 1 config check "$scratch/none.conf"

expect_status 2 "$TIERCTL" config
expect_status 2 "$TIERCTL" config chekc "$conf"
expect_status 2 "$TIERCTL" config check "$conf" surplus
