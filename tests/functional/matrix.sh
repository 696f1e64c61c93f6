#!/bin/sh
# Trains through a real daemon, with a real process for each rank, and compares every bit with a reference.
#   matrix.sh "SET…" [FLAG…]   $MATRIX is the program; the flags are the daemon's
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

sets=$1
shift
# Ranks in different orders leave much in their buffers, or put it aside.
tierd_start --host-budget 1G "$@"
# shellcheck disable=SC2086 # several words
"$MATRIX" $sets || fail "$sets with $*"
tierd_stop
