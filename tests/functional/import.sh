#!/bin/sh
# Imports: round trips of exports, files of any shape, what is refused, and importers and daemons that are killed.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
exported=$1
user_job=$2
folder=$(cd "$(dirname "$0")" && pwd)

import_all() {
	python3 "$folder/import.py" "$exported" "$user_job" "$nvme/out" "$scratch" "$1" || fail 'see above'
}

mkdir "$nvme/out"
tierd_start
import_all trips
# What is imported needs no daemon to stay.
tierd_kill
tierd_start
import_all after
tierd_stop
forget_jobs
