# shellcheck shell=bash
# Completion of tierd: the flags that its help tells of, and files.
_tierd() {
	local current=${COMP_WORDS[COMP_CWORD]} flags

	COMPREPLY=()
	[[ $current == -* ]] || return
	flags=$("${COMP_WORDS[0]}" --help 2>/dev/null | grep -oE '(^  |, )--[a-z-]+' | grep -oE -- '--[a-z-]+')
	mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
}
complete -o default -F _tierd tierd
