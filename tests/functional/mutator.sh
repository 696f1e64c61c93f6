#!/bin/sh
# A client that writes noise over its shared pages while tierd works with them harms nobody: a job that trains meanwhile gets
# the same bits as alone, and nothing is left of the mutator but its job. mutator.sh TRAINER; $SEED repeats a run.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
trainer=$1
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

# Sessions that tierd has ended for their leases are looked at once a second until those are gone.
tierd_start --connections-per-user 100
echo "seed $seed"
"$trainer" steady calm "$scratch/calm" || fail 'the trainer fails alone'
before=$(open_descriptors)
python3 "$(dirname "$0")/mutator.py" "$seed" "${ROUNDS:-30}" &
pid=$!
rounds=0
until [ $rounds -gt 1 ] && ! kill -0 $pid 2>/dev/null; do
	"$trainer" steady victim "$scratch/victim" || fail 'the trainer fails beside the mutator'
	cmp "$scratch/calm" "$scratch/victim" || fail "another job's state has changed"
	rounds=$((rounds + 1))
done
wait $pid || fail 'the mutator fails'
expect_status 0 "$TIERCTL" drop --yes --force mutator
await_descriptors "$before"
expect_status 0 "$TIERCTL" status
expect_text "pid $tierd_pid"
tierd_stop
