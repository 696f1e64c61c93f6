#!/usr/bin/env bash
# What a shell offers at each place of a command line. completion.bash: sourced files are those of the tree.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
set +eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=client/tierctl/completion.bash
. "$root/client/tierctl/completion.bash"
# shellcheck source=daemon/service/completion.bash
. "$root/daemon/service/completion.bash"
# Outside of a real completion there are no options to set.
compopt() { :; }
PATH=$(dirname "$TIERCTL"):$(dirname "$TIERD"):$PATH

# offer WORD…: what is offered for the last one, sorted, in $offered
offer() {
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	COMPREPLY=()
	"_$1"
	offered=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')
	offered=${offered% }
}

expect() { # EXPECTED WORD…
	local expected=$1
	shift
	offer "$@"
	[ "$offered" = "$expected" ] || fail "'$*' is offered '$offered' instead of '$expected'"
}

# ---- Without a daemon

offer tierctl ''
verbs=$offered
[ "$verbs" = "$(tierctl help | sed -n 's/^  \([a-z][a-z]*\).*/\1/p' | sort | tr '\n' ' ' | sed 's/ $//')" ] ||
	fail "not the verbs of the help: $verbs"
expect 'diff doctor drain drop' tierctl d
expect '' tierctl no
expect '--force' tierctl drop --f
expect '--force' tierctl --json drop gpt --f
expect 'bf16 fp16 fp32' tierctl plan --format ''
expect 'lion' tierctl plan --parameters 7B --optimizer = l
expect 'check' tierctl config ''
expect '' tierctl drop ''
expect '' tierctl drop gpt ''
expect 'watch' tierctl help w
expect '' tierctl frobnicate ''
expect 'fp32 parameter' tierctl export gpt -o x --format ''
expect 'root' tierctl drop gpt --user roo
touch "$scratch/one.conf" "$scratch/other.conf"
expect "$scratch/one.conf" tierctl doctor "$scratch/one"
expect "$scratch/one.conf" tierctl export gpt -o "$scratch/one"
expect "$scratch/one.conf $scratch/other.conf" tierctl config check "$scratch/o"
expect "$scratch/other.conf" tierctl --socket "$scratch/ot"

# Each flag that is offered is taken, and told of in the help.
for verb in $verbs; do
	offer tierctl "$verb" --
	for flag in $offered; do
		tierctl help "$verb" | grep -q -- "  $flag" || fail "$verb $flag is not in the help"
		tierctl "$verb" "$flag" 2>&1 | grep -q 'unknown flag' && fail "$verb $flag is unknown"
	done
	grep -q "^\.It Cm $verb" "$root/docs/man/tierctl.1" || fail "$verb is not in the manual page"
	for flag in $offered; do
		grep -qE " -${flag#--}( |\$)" "$root/docs/man/tierctl.1" || fail "$flag is not in the manual page"
	done
done </dev/null

expect '--config' tierd --conf
expect '--check-config' tierd --ch
expect '--host-budget' tierd --ho
expect '' tierd "$scratch/o"

# ---- With one, which knows the jobs

tierd_start
"$1" job=gpt </dev/null >/dev/null || fail 'no job is trained'
"$1" job=gpt-2 </dev/null >/dev/null || fail 'no job is trained'
for verb in jobs drop units leases evict release watch; do
	expect 'gpt gpt-2' tierctl $verb ''
done
expect 'gpt-2' tierctl drop gpt-
expect 'none read train' tierctl share gpt ''
# One that is stuck is not waited for.
kill -STOP "$tierd_pid"
expect '' tierctl drop gpt
kill -CONT "$tierd_pid"
expect 'gpt gpt-2' tierctl drop gpt
socket=$TIERD_SOCKET
TIERD_SOCKET=/nowhere
expect '' tierctl drop ''
expect 'gpt gpt-2' tierctl --socket "$socket" drop ''
expect 'gpt gpt-2' tierctl --socket = "$socket" drop ''
TIERD_SOCKET=$socket
tierd_stop
