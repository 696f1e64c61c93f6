#!/bin/sh
# The port of llm.c: its calls on a model of their shape, and the lines that its script adds.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"
program=$1
port=$(dirname "$0")/../../examples/llmc/port

# shellcheck disable=SC2119 # the program's path is no flag
tierd_start
timeout "$patience" "$program" || fail 'the port does not train'
tierd_stop

# Another version of llm.c is told from the right one.
echo 'int main() { return 0; }' >"$scratch/train_gpt2.c"
expect_status 1 python3 "$port" "$scratch/train_gpt2.c"
expect_text 'another version of llm.c'
expect_status 1 python3 "$port"
