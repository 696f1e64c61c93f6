#!/bin/sh
# What tierctl writes goes nowhere that another user has laid out: his symbolic links are refused, --force or not, last or in the
# middle of a path, and so are his pipes; the caller's own, and those of a folder's owner, lead where they say.
# usage: foreign_links.sh USER_JOB
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'
command -v setpriv >/dev/null || skip 'setpriv is not installed'

# Numbers that have no name anywhere.
alice=60001 bob=60002
as() { # UID COMMAND…
	uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

chmod 755 "$scratch"
cp "$TIERCTL" "$scratch/tierctl"
chmod 755 "$scratch/tierctl"
TIERCTL=$scratch/tierctl
tierd_start
chmod 755 "$scratch/run"
chmod 666 "$TIERD_SOCKET"
"$program" job=gpt </dev/null >"$scratch/out" || fail "$(cat "$scratch/out")"
tensor=$("$TIERCTL" --json tensors gpt | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["name"])')

mkdir "$scratch/safe"
echo precious >"$scratch/safe/file"
# In neither of them a link of alice's is the folder's owner's; in one of them the kernel may refuse it itself.
mkdir -m 777 "$scratch/open"
mkdir -m 1777 "$scratch/sticky"

writes() { # STATUS PATH
	for command in 'export gpt --force' 'trace gpt --seconds 1 --force' "read gpt $tensor"; do
		# shellcheck disable=SC2086
		expect_status "$1" timeout "$patience" "$TIERCTL" $command --output "$2"
		[ "$1" -eq 0 ] || expect_text "of $alice, who owns neither its folder nor this process"
	done
}

is_untouched() {
	[ "$(cat "$scratch/safe/file")" = precious ] || fail 'a file was written to'
	[ "$(ls "$scratch/safe")" = file ] || fail "files were made: $(ls "$scratch/safe")"
}

for folder in open sticky; do
	folder=$scratch/$folder
	# Of the file, of one that is not there, of a folder, and by way of a link of our own.
	as $alice ln -s "$scratch/safe/file" "$folder/last"
	as $alice ln -s "$scratch/safe/new" "$folder/new"
	as $alice ln -s "$scratch/safe" "$folder/middle"
	ln -s last "$folder/own"
	for path in last new middle/file middle/new middle own; do
		writes 1 "$folder/$path"
		is_untouched
	done
	# Without --force, too.
	expect_status 1 "$TIERCTL" export gpt --output "$folder/new"
	expect_text "$folder/new is a symbolic link of $alice"
	expect_status 1 "$TIERCTL" trace gpt --seconds 1 --output "$folder/new"
	is_untouched
done

# A pipe that somebody reads would tell him, and one that nobody reads would be waited for.
as $alice mkfifo -m 666 "$scratch/open/pipe"
for command in 'trace gpt --seconds 1' "read gpt $tensor"; do
	# shellcheck disable=SC2086
	expect_status 1 timeout 60 "$TIERCTL" $command --output "$scratch/open/pipe"
	expect_text "$scratch/open/pipe is a pipe of another user"
done
as $alice mkfifo -m 666 "$scratch/open/new.json.partial"
expect_status 1 timeout 60 "$TIERCTL" trace gpt --seconds 1 --output "$scratch/open/new.json"
expect_text "$scratch/open/new.json.partial is no regular file"
# Another name of somebody else's file is replaced, and not that file.
ln "$scratch/safe/file" "$scratch/open/hard"
writes 0 "$scratch/open/hard"
is_untouched

# ---- What users need

mkdir "$scratch/elsewhere"
ln -s "$scratch/elsewhere" "$scratch/open/mine"
writes 0 "$scratch/open/mine/file"
ln -s ../elsewhere/other "$scratch/open/relative"
writes 0 "$scratch/open/relative"
[ -f "$scratch/elsewhere/other" ] || fail 'not where the link leads to'
# Of one who is helped by root in his own folder.
mkdir "$scratch/home" "$scratch/home/data"
chown $alice "$scratch/home" "$scratch/home/data"
as $alice ln -s data "$scratch/home/link"
writes 0 "$scratch/home/link/file"
# Of root, in root's folder, as /tmp may be one: for a user.
mkdir "$scratch/disk"
chmod 1777 "$scratch/disk"
ln -s disk "$scratch/tmp"
"$program" uid=$bob job=bobs </dev/null >"$scratch/out" || fail "$(cat "$scratch/out")"
expect_status 0 as $bob "$TIERCTL" export bobs --output "$scratch/tmp/bobs"
[ "$(stat -c %u "$scratch/disk/bobs")" -eq $bob ] || fail 'not where the link leads to'
# Descriptors of one's own.
"$TIERCTL" read gpt "$tensor" --output /dev/stdout 2>/dev/null | cmp - "$scratch/elsewhere/file" || fail '/dev/stdout'
exec 5>"$scratch/five"
"$TIERCTL" read gpt "$tensor" --output /dev/fd/5 2>/dev/null
cmp "$scratch/five" "$scratch/elsewhere/file" || fail '/dev/fd/5'
"$TIERCTL" read gpt "$tensor" --output /dev/fd/6 6>&1 >/dev/null 2>&1 | cmp - "$scratch/elsewhere/file" || fail '/dev/fd/6'
mkfifo "$scratch/pipe"
cat "$scratch/pipe" >"$scratch/read" &
"$TIERCTL" read gpt "$tensor" --output "$scratch/pipe" 2>/dev/null || fail 'a pipe of our own'
wait $!
cmp "$scratch/read" "$scratch/elsewhere/file" || fail 'a pipe of our own'
tierd_stop
[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
