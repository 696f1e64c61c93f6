# shellcheck shell=bash
# Completion of tierctl: what may come next tierctl knows itself, with the names of the jobs that one may see.
_tierctl() {
	local current=${COMP_WORDS[COMP_CWORD]} line
	local -a found=()

	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:file)
			compopt -o filenames
			mapfile -t found < <(compgen -f -- "${current#=}")
			COMPREPLY+=("${found[@]}")
			;;
		:user)
			mapfile -t found < <(compgen -u -- "${current#=}")
			COMPREPLY+=("${found[@]}")
			;;
		*) COMPREPLY+=("$line") ;;
		esac
	done < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _tierctl tierctl
