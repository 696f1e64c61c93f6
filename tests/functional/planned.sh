#!/bin/sh
# A plan is what a job takes: to the byte, with its least budgets, and of files. planned.sh GPT
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

use_gpt "$1"

look() { # MODE
	python3 "$(dirname "$0")/planned.py" "$1" "$gpt" "$scratch" "$nvme" || fail "$1: see above"
}

# Without a daemon: it starts those that it wants.
for mode in bounds sizes least_budgets least_disks idle; do
	look $mode
done
# State is striped over both of its paths.
nvme_capacity=4G
mkdir "$nvme/other"
tierd_start --host-budget 2G --nvme "$nvme/other:4G"
look jobs
look own_budgets
look files
tierd_stop

# What has been planned before is refused for the same reason.
forget_jobs
nvme_capacity=1900M
tierd_start --host-budget 2G
look refused
tierd_stop
