#!/bin/sh
# The help of every program and of each verb of tierctl is aligned. help.sh GPT
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
run=$(dirname "$0")/../../run

{
	printf '"%s" %s\n' "$TIERD" --help "$TIERCTL" --help "$1" --help "$run" help
	"$TIERCTL" help | sed -n "s|^  \([a-z]*\).*|\"$TIERCTL\" \1 --help|p"
} >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -gt 15 ] || fail "too few verbs: $(cat "$scratch/commands")"
python3 "$(dirname "$0")/help.py" <"$scratch/commands" || fail 'see above'
