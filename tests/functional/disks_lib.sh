# shellcheck shell=sh
# Sourced after lib.sh by tests whose disks come and go. A disk is a folder in $nvme, and mounted where it is called so; what is
# left in its place is an empty one.
#
#   mount_disk DISK PATH, unmount_disk PATH DISK
#   start PATH…           a daemon that has these paths
#   file_of JOB           the files of its store, wherever they are
#   expect_broken JOB TEXT   it is shown as broken, says that everywhere, and whoever opens it is refused
#   expect_not_mounted JOB PATH   so, because of that path
#   expect_resumed JOB STEPS   it is there, and goes on to the bits of an undisturbed training
use_gpt "$1"

mount_disk() { # DISK PATH
	mkdir -p "$nvme/$1"
	rmdir "$nvme/$2/tierd" 2>/dev/null || true
	[ ! -e "$nvme/$2" ] || rmdir "$nvme/$2"
	mv "$nvme/$1" "$nvme/$2"
}

unmount_disk() { # PATH DISK
	mv "$nvme/$1" "$nvme/$2"
	mkdir "$nvme/$1"
}

launch() { # PATH…
	: >"$tierd_log"
	paths=$*
	set --
	for path in $paths; do
		set -- "$@" --nvme "$nvme/$path:1G"
	done
	"$TIERD" --socket "$TIERD_SOCKET" --state-dir "$scratch/state" --host-budget 256M --file-system any --workers 2 \
		--log-level debug "$@" 2>>"$tierd_log" &
	tierd_pid=$!
}

start() { # PATH…
	launch "$@"
	await tierd_answers || fail 'the daemon does not answer'
}

file_of() { # JOB
	find "$nvme" -name "$1-*.store"
}

expect_log() { # TEXT
	grep -q "$1" "$tierd_log" || fail "'$1' is not in the log: $(cat "$tierd_log")"
}

expect_broken() { # JOB TEXT
	expect_status 0 "$TIERCTL" jobs "$1"
	expect_text broken
	expect_text "$2"
	expect_text 'tierctl drop --lost'
	expect_log "job $1 of user [0-9]*: its store .* cannot be opened: "
	for mode in either create resume; do
		expect_status 1 run_gpt --steps 4 --job "$1" --mode $mode
		[ $mode = create ] || expect_text "$2"
	done
	# What it has is not known, and whoever asks for it is told why.
	for verb in units tensors verify 'plan --like'; do
		# shellcheck disable=SC2086 # they may be two words
		expect_status 1 "$TIERCTL" $verb "$1"
		expect_text "$2"
	done
	! "$TIERCTL" jobs "$1" | grep -q 'step [1-9]' || fail "it has begun anew: $("$TIERCTL" jobs)"
}

expect_not_mounted() { # JOB PATH
	expect_broken "$1" 'that path is not mounted; mount it and start tierd again'
	expect_text "$nvme/$2/tierd/"
}

expect_resumed() { # JOB STEPS
	expect_status 0 run_gpt --steps "$2" --job "$1" --mode resume --dump "$scratch/dump"
	expect_status 0 run_gpt --steps "$2" --job calm-"$2" --mode replace --dump "$scratch/calm"
	cmp "$scratch/calm" "$scratch/dump" || fail "$1 has other bits"
	"$TIERCTL" drop calm-"$2" --yes >/dev/null
}
