#!/bin/sh
# Folders of tierd's that another user has made, or may write to: none is used, and the error names it and what mends it. What lies
# in them and is no regular file is neither waited for nor followed, and a job that lies in another user's folder is not his.
# usage: foreign_folders.sh USER_JOB
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'
command -v setpriv >/dev/null || skip 'setpriv is not installed'

# Of the daemon, and of somebody who means no good; numbers that have no name anywhere.
keeper=60009 alice=60001 bob=60002
as() { # UID COMMAND…
	uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

cp "$TIERD" "$TIERCTL" "$scratch"
TIERD=$scratch/tierd TIERCTL=$scratch/tierctl
chmod 755 "$scratch" "$TIERD" "$TIERCTL"
shared=$scratch/shared
mkdir "$shared" "$scratch/home" "$scratch/home/nvme"
chown -R $keeper:$keeper "$scratch/home"
chmod 755 "$scratch/home" "$scratch/home/nvme"
chmod 777 "$shared"
TIERD_SOCKET=$scratch/home/tierd.sock state=$scratch/home/state nvme_path=$scratch/home/nvme
unset XDG_RUNTIME_DIR

# In a shell of its own, which it replaces.
start_as_keeper() { # COMMAND…
	exec setpriv --reuid=$keeper --regid=$keeper --clear-groups "$@" "$TIERD" --socket "$TIERD_SOCKET" --state-dir "$state" \
		--host-budget 256M --nvme "$nvme_path:1G" --file-system memory --workers 2
}

start() {
	: >"$tierd_log"
	start_as_keeper env 2>>"$tierd_log" &
	tierd_pid=$!
	await tierd_answers || fail 'the daemon does not answer'
}

stop() {
	tierd_stop
	[ "$tierd_status" -eq 0 ] || fail "exit status $tierd_status"
}

refuses() { # TEXT…
	expect_status 1 start_as_keeper timeout 30
	for text; do
		expect_text "$text"
	done
}

# ---- The folder on an NVMe path

nvme_path=$shared
as $alice mkdir -m 0777 "$shared/tierd"
refuses "$shared cannot be used: $shared/tierd belongs to $alice, and has to be $keeper's own" \
	"chown -R $keeper $shared/tierd"
as $alice rmdir "$shared/tierd"
as $keeper mkdir "$shared/tierd"
for mode in 0770 0707; do
	chmod $mode "$shared/tierd"
	refuses "others than $keeper may write to $shared/tierd (mode $mode)" "chmod go-w $shared/tierd"
done
rmdir "$shared/tierd"
as $alice ln -s "$scratch/home" "$shared/tierd"
refuses "$shared cannot be used"
rm "$shared/tierd"
nvme_path=$scratch/home/nvme

# ---- The state directory

state=$shared/state
as $alice mkdir -m 0777 "$state"
refuses "the state directory cannot be used: $state belongs to $alice" "chown -R $keeper $state" 'choose another --state-dir'
as $alice rmdir "$state"
as $keeper mkdir "$state"
chmod 0777 "$state"
refuses "others than $keeper may write to $state (mode 0777)" "chmod go-w $state"
rm -r "$state"
state=$scratch/home/state
rm -f "$state/lock"
for kind in fifo link folder; do
	case $kind in
	fifo) mkfifo -m 666 "$state/lock" ;;
	link) ln -s "$scratch/home/linked" "$state/lock" ;;
	folder) mkdir -m 777 "$state/lock" ;;
	esac
	refuses "$state/lock is no regular file"
	rm -r "$state/lock"
done
[ ! -e "$scratch/home/linked" ] || fail 'a link in the state directory was followed'

# None of these is waited for, or written to.
echo precious >"$scratch/home/precious"
chown $keeper "$scratch/home/precious"
mkfifo -m 666 "$state/jobs"
ln "$scratch/home/precious" "$state/jobs.new"
mkfifo -m 666 "$state/wear" "$state/wear.new"
chown -h $keeper "$state"/*
start
stop
[ "$(cat "$scratch/home/precious")" = precious ] || fail 'a file that was linked to another name was written to'
rm -r "$state"

# ---- The folder of the socket

TIERD_SOCKET=$shared/tierd.sock
refuses "cannot listen at $shared/tierd.sock: others than $keeper may write to $shared" 'choose another --socket'
as $alice mkdir -m 0755 "$shared/run"
TIERD_SOCKET=$shared/run/tierd.sock
chmod 777 "$shared/run"
refuses "$shared/run belongs to $alice"
[ ! -e "$shared/run/tierd.sock" ] || fail 'a socket was made there'
rm -r "$shared/run"
# As in /tmp, where nobody removes what is another's.
mkdir -m 1777 "$shared/sticky"
TIERD_SOCKET=$shared/sticky/tierd.sock
start
[ "$(stat -c %a "$TIERD_SOCKET")" = 600 ] || fail "mode $(stat -c %a "$TIERD_SOCKET")"
stop
TIERD_SOCKET=$scratch/home/tierd.sock

# ---- A job in the folder of another user

train() { # UID JOB
	chmod 666 "$TIERD_SOCKET"
	"$program" uid="$1" job="$2" mode=open_or_create </dev/null >"$scratch/out" || fail "$(cat "$scratch/out")"
}

start
train $alice state
stop
mv "$nvme_path/tierd/$alice" "$nvme_path/tierd/$bob"
start
chmod 666 "$TIERD_SOCKET"
grep -q "$bob/state-1.store: it is a job of user $alice, in the folder of user $bob" "$tierd_log" ||
	fail "the log says: $(cat "$tierd_log")"
expect_status 1 as $bob "$TIERCTL" drop --yes --lost state
expect_text 'there is no job state'
train $bob state
expect_status 0 as $alice "$TIERCTL" jobs state
expect_text broken
stop
mkdir -p "$nvme_path/tierd/$alice"
chown $keeper:$keeper "$nvme_path/tierd/$alice"
chmod 700 "$nvme_path/tierd/$alice"
mv "$nvme_path/tierd/$bob/state-1.store" "$nvme_path/tierd/$alice"

# A user's folder that is not the daemon's own, or that is elsewhere.
chown $bob "$nvme_path/tierd/$alice"
chmod 755 "$nvme_path/tierd/$alice"
start
grep -q "$nvme_path/tierd/$alice is not tierd's own, or others may write to it" "$tierd_log" ||
	fail "the log says: $(cat "$tierd_log")"
stop
chown $keeper "$nvme_path/tierd/$alice"
chmod 700 "$nvme_path/tierd/$alice"
mv "$nvme_path/tierd/$alice" "$scratch/home/elsewhere"
as $keeper ln -s "$scratch/home/elsewhere" "$nvme_path/tierd/$alice"
start
chmod 666 "$TIERD_SOCKET"
expect_status 0 as $alice "$TIERCTL" jobs state
expect_text broken
stop
rm "$nvme_path/tierd/$alice"

# What somebody has put in the place of a file of the daemon's, who could: nothing is waited for, and nothing of it is lost.
file=$(echo "$nvme_path/tierd/$bob"/state-*.store)
mv "$file" "$scratch/home/store"
for command in 'mkfifo -m 600' "ln -s $scratch/home/store"; do
	# shellcheck disable=SC2086
	as $keeper $command "$file"
	start
	chmod 666 "$TIERD_SOCKET"
	expect_status 0 as $bob "$TIERCTL" jobs state
	expect_text "$file cannot be opened: it is no regular file"
	expect_text 'remedy: put the file back that was there'
	stop
	rm "$file"
done
mv "$scratch/home/store" "$file"
mv "$scratch/home/elsewhere" "$nvme_path/tierd/$alice"
start
chmod 666 "$TIERD_SOCKET"
for user in $alice $bob; do
	expect_status 0 as "$user" "$TIERCTL" jobs state
	expect_text 'step 1'
done
stop
