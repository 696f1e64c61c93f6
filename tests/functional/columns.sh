#!/bin/sh
# What tierctl shows fits into the columns that there are, however long the names are.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

folder=$nvme/a-path-of-a-disk-that-is-longer-than-a-line-of-a-terminal/by-a-name-that-nobody-would-type-twice
mkdir -p "$folder"
# As long as the path of a socket may be.
TIERD_SOCKET=$scratch/$(printf '%*s' $((100 - ${#scratch})) '' | tr ' ' s).sock
export TIERD_SOCKET
tierd_start --nvme "$folder:1G"
SCRATCH=$scratch FOLDER=$folder python3 "$(dirname "$0")/columns.py" || fail 'see above'
tierd_stop
