#!/bin/sh
# Two users and three jobs for as long as is said, trainers killed at random: every job's bits are right, and nothing
# grows in the daemon or on the disk.
# endurance.sh GPT LIBTIERD SECONDS; $SEED chooses another order of events
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
gpt=$1 library=$2 seconds=$3
[ "$(id -u)" -eq 0 ] || skip 'only root can play several users'

tierd_start --idle-release-seconds 1 --log-level warning
# Users need a way to the socket, and to the programs wherever they were built.
chmod 755 "$scratch" "$scratch/run"
chmod 666 "$TIERD_SOCKET"
cp "$TIERCTL" "$scratch/tierctl"
# gpt looks for the library as it lies in the build folder.
mkdir -p "$scratch/client" "$scratch/examples/gpt"
cp "$gpt" "$scratch/examples/gpt/gpt"
cp "$library" "$scratch/client/libtierd.so.0"
# gpt's default, the sources, may change meanwhile.
cp "$(dirname "$0")/../../docs/numerics.md" "$scratch/data"
chmod -R 755 "$scratch/tierctl" "$scratch/client" "$scratch/examples"
chmod 644 "$scratch/data"
TIERD_PID=$tierd_pid NVME=$nvme SCRATCH=$scratch TIERCTL=$scratch/tierctl \
	python3 "$(dirname "$0")/endurance.py" "$seconds" "${SEED:-1}" || fail 'see above'
tierd_stop
forget_jobs
