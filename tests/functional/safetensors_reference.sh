#!/bin/sh
# Files of tensors, and the library that others read and write them with: ours load there, bit for bit, and theirs here.
# shellcheck source=tests/functional/lib.sh disable=SC2119
. "$(dirname "$0")/lib.sh"
program=$1
folder=$(cd "$(dirname "$0")" && pwd)

# Fetched once for a build.
environment=${TIERD_TEST_DISK:-$nvme}/reference
python=$environment/bin/python
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
	rm -rf "$environment"
	python3 -m venv "$environment" >"$scratch/venv" 2>&1 ||
		skip "python3 cannot make an environment: $(tail -n 1 "$scratch/venv")"
	"$python" -m pip install --quiet --retries 1 'safetensors>=0.4,<1' 'numpy<3' >"$scratch/pip" 2>&1 || {
		rm -rf "$environment"
		skip "the reference cannot be fetched from PyPI: $(tail -n 1 "$scratch/pip")"
	}
fi

tierd_start
mkdir "$nvme/out"
PYTHONPATH=$folder "$python" "$folder/safetensors_reference.py" "$program" "$nvme/out" "$scratch" || fail 'see above'
tierd_stop
