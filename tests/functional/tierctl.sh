#!/bin/sh
# Every verb, for people and for programs, with and without a daemon.
# shellcheck source=tests/functional/lib.sh
. "$(dirname "$0")/lib.sh"

expect_status 0 "$TIERCTL" --version
expect_status 0 "$TIERCTL" help
expect_text plan
expect_status 2 "$TIERCTL"
expect_status 2 "$TIERCTL" frobnicate
expect_text frobnicate
expect_status 2 "$TIERCTL" --frobnicate status
expect_status 2 "$TIERCTL" status surplus
expect_status 2 "$TIERCTL" units
expect_status 2 "$TIERCTL" jobs one two
expect_status 2 "$TIERCTL" status --socket
for verb in status plan; do
	expect_status 0 "$TIERCTL" $verb --help
	expect_text Usage
done
for verb in status jobs tiers ping 'units gpt'; do
	# shellcheck disable=SC2086 # a verb and its argument
	expect_status 3 "$TIERCTL" $verb
	expect_text "$TIERD_SOCKET"
done

python3 "$(dirname "$0")/strangers.py" "$scratch" || fail 'see above'

# The plan needs no daemon that runs.
expect_status 0 "$TIERCTL" plan --parameters 7B --world-size 8
expect_text 'so what fits is unknown'
expect_status 2 "$TIERCTL" plan --parameters 7B
expect_status 2 "$TIERCTL" plan --parameters seven --world-size 8
expect_text seven
expect_status 2 "$TIERCTL" plan --parameters 7B --world-size 0
expect_text "--world-size cannot be '0'; it takes a number from 1 to 1024"
expect_status 2 "$TIERCTL" plan --parameters 7B --world-size 8 --micro-batches 65537
expect_text "--micro-batches cannot be '65537'"
expect_status 2 "$TIERCTL" plan --parameters 7B --world-size 8 --largest-unit 8B
expect_text '--largest-unit 8000000000 is more than --parameters 7000000000'
expect_status 2 "$TIERCTL" plan --parameters 7B --world-size 8 --local-ranks 9
expect_text '--local-ranks 9 are more than --world-size 8'
expect_status 2 "$TIERCTL" plan --parameters 7B --world-size 8 --stage 4
json 'j["stages"][0]["bytes_per_rank"] == 16e9' plan --parameters 1B --world-size 8
json 'j["stages"][3]["bytes_per_rank"] == 2e9' plan --parameters 1B --world-size 8
json 'j["stages"][0]["bytes_per_rank"] == 8e9' plan --parameters 1B --world-size 8 --optimizer sgd
json 'j["stages"][0]["bytes_per_rank"] == 12e9 and j["moments"] == "bf16"' plan --parameters 1B --world-size 8 --moments bf16
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --optimizer adagrad
json 'j["stages"][3]["parameter_bytes_per_rank"] == 10e6 + 2**30' plan --parameters 40M --world-size 8 --frozen 8G
expect_status 2 "$TIERCTL" plan --parameters 40M --world-size 8 --frozen 100T
expect_text 'more than 64T'
json 'j["stages"][2]["placements"][0]["gradient_read_bytes_per_parameter"] == 8' \
	plan --parameters 1B --world-size 8 --gradients nvme --micro-batches 2
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --stage 1 --gradients nvme
expect_text '--gradients nvme needs stage 2 or 3'
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 8 --optimizer sgd --moments int8 --pushed-once
expect_text 'bf16 with sgd over 8 ranks'
expect_text 'each unit pushed once, which saves nothing with several ranks'
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 1 --optimizer lion --moments int8 --pushed-once
expect_text 'with lion (moments in int8) over 1 rank'
expect_text '  5.02 + 5.02  '
case $output in
*'saves nothing'*) fail "it saves: $output" ;;
esac
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --gradients disk
expect_text "it takes host or nvme"
for snapshots in 15 -1 some; do
	expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --snapshots "$snapshots"
	expect_text "--snapshots cannot be '$snapshots'"
done
json 'all(5 * 12e9 <= p["at_best"]["nvme_bytes"] <= p["nvme_bytes"] < 5.4 * 12e9 for p in j["stages"][3]["placements"])' \
	plan --parameters 1B --world-size 8 --snapshots 3
json 'all(2 * 12e9 <= p["at_best"]["nvme_bytes"] <= p["nvme_bytes"] < 2.2 * 12e9 for p in j["stages"][3]["placements"])' \
	plan --parameters 1B --world-size 8 --snapshots 0
# What is not durable takes nothing on NVMe but what lives there.
json '[round(p["at_best"]["nvme_bytes"] / 1e9) for p in j["stages"][3]["placements"]] == [0, 20, 4, 24] and not j["is_durable"]' \
	plan --parameters 1B --world-size 8 --durability none
json 'all(p["nvme_bytes"] > 24e9 for p in j["stages"][3]["placements"]) and j["is_durable"]' \
	plan --parameters 1B --world-size 8 --durability 600
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 8 --durability none
expect_text 'not durable'
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --durability none --snapshots 1
expect_text 'snapshots are of jobs that are durable'
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 8 --durability sometimes
expect_text 'it takes step, none, or seconds'
json '"fits" not in j["stages"][0]["placements"][0]' plan --parameters 1B --world-size 8
json 'all(p["fits"] for p in j["stages"][0]["placements"])' \
	plan --parameters 1B --world-size 8 --stage 3 --host 64G --nvme 64G
json '[p["fits"] for p in j["stages"][0]["placements"]] == [False, True, False, True]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 5G --nvme 64G --largest-unit 20M
# Whether all parameters find room in host memory depends on the units.
json '[p.get("fits") for p in j["stages"][0]["placements"]] == [False, None, False, True]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 2500M --nvme 64G --largest-unit 20M
# placement = auto takes one of them.
json '[p["is_auto"] for p in j["stages"][0]["placements"]] == [False, False, False, True]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 5G --nvme 64G --largest-unit 20M
json '[p["is_auto"] for p in j["stages"][0]["placements"]] == [True, False, False, False]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 64G --nvme 64G
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 8 --stage 3 --host 64G --nvme 64G
expect_text 'yes, auto'
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 8 --stage 3 --host 2500M --nvme 64G --largest-unit 20M
expect_text 'no: host'
expect_text 'perhaps'
# With one of the two, what needs the other is not known, but what lacks the first is. Where there is NVMe all need it.
json '[p.get("fits") for p in j["stages"][0]["placements"]] == [False, None, False, None]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 5g --largest-unit 20M
json '[p.get("fits") for p in j["stages"][0]["placements"]] == [None, None, None, None]' \
	plan --parameters 1B --world-size 8 --stage 3 --host 64g
expect_status 0 "$TIERCTL" plan --parameters 1B --world-size 8 --host 5G
expect_text '5.00 GiB of host memory; no tierd answers'
# On a node without NVMe nothing is durable, and what would lie there cannot be.
json '[p["fits"] for p in j["stages"][0]["placements"]] == [True, False, False, False] and not j["is_durable"]' \
	plan --layers 2 --stage 3 --host 1G --nvme 0

# Of units that are known, it is exact; of one model at a time, and who plans has to be there.
json 'j["is_exact"] and j["units"] == 10 and j["parameters"] == 6416896 and "gpus" not in j' plan --layers 8
expect_status 2 "$TIERCTL" plan --layers 8 --parameters 1B --world-size 8
expect_text 'of one model'
expect_status 2 "$TIERCTL" plan
expect_text 'plan needs --parameters'
expect_status 2 "$TIERCTL" plan --width 256
expect_status 2 "$TIERCTL" plan --layers 8 --largest-unit 1M
expect_text 'units say that themselves'
expect_status 2 "$TIERCTL" plan --parameters 1B --world-size 1 --largest-unit 100
expect_text 'more than 100000 units'
expect_status 0 "$TIERCTL" plan --layers 8 --stage 3 --host 12M --nvme 1G
expect_text 'It has 10 units, so what it takes is known to the byte'
expect_text 'a tierd with --host-budget '
expect_text 'What would help'
expect_text '--gradient-buffers 1'
# What is changed for less is not advised where it is so already.
expect_status 0 "$TIERCTL" plan --layers 8 --stage 3 --host 5M --nvme 1G --gradient-buffers 1 --moments int8 --durability none
case $output in *'--gradient-buffers 1 '* | *'--moments '* | *'all of these'*) fail "it is so already: $output" ;; esac
# A room as large as the largest unit is one buffer; what it has more it takes, and one buffer is advised.
expect_status 0 "$TIERCTL" plan --layers 8 --stage 3 --host 12M --nvme 1G --gradient-bytes 8M
expect_text '--gradient-buffers 1'
json '[p["host_buffer_bytes"] for p in j["stages"][0]["placements"]] == [8 << 20] * 4' \
	plan --layers 8 --stage 3 --host 1G --nvme 1G --gradient-bytes 8M
echo '[{"name": "u", "tensors": [{"name": "w", "format": "bf16", "shape": [1024, 1024], "gradient_format": "fp32"}]}]' >"$scratch/wide"
json '[p["host_buffer_bytes"] for p in j["stages"][0]["placements"]] == [4 << 20] * 4' \
	plan --units "$scratch/wide" --stage 3 --host 1G --nvme 1G --gradient-bytes 1
expect_status 2 "$TIERCTL" plan --layers 8 --gradient-bytes 0
expect_text 'a size such as 64G'

# Of GPUs: what they have to hold, and what PCIe moves; in bounds where the units are not known.
json '(j["gpus"]["count"] == j["gpus"]["ranks"] == 2 and j["gpus"]["bytes"] == 24 << 30 and j["gpus"]["fits"] and "refusal" not in j["gpus"]
	and j["gpus"]["to_gpu_bytes"] == 2 * j["gpus"]["from_gpu_bytes"] == 2 * j["gpus"]["at_best"]["to_gpu_bytes"]
	and j["gpus"]["pcie_seconds"] == j["gpus"]["to_gpu_bytes"] / 12.5e9)' plan --layers 8 --world-size 4 --stage 3 --gpu 2x24G --pcie 12.5
json '(28e9 <= j["gpus"]["to_gpu_bytes"] < 28.1e9 and 1.12 <= j["gpus"]["pcie_seconds"] < 1.13 and "fits" not in j["gpus"]
	and j["gpus"]["at_best"]["unit_bytes"] < 1e9 < j["gpus"]["unit_bytes"])' plan --parameters 7B --world-size 4 --stage 3 --gpu 8G
expect_status 0 "$TIERCTL" plan --layers 8 --world-size 4 --stage 3 --gpu 2x24G --activations 10G
expect_text '2 GPUs of 24.0 GiB with 2 ranks each'
expect_text ' 20.0 GiB'
expect_text 'as of PCIe 4 with 16 lanes (--pcie)'
# The largest unit is named where it has a name of its own, and what is said to do does.
expect_status 0 "$TIERCTL" plan --layers 8 --width 4096 --stage 3 --gpu 1x512M
expect_text 'It does not fit: a GPU of 512 MiB is too small'
expect_text 'layer.0, has 384 MiB'
expect_text '--gpu 1x1540M would do'
json 'j["gpus"]["fits"]' plan --layers 8 --width 4096 --stage 3 --gpu 1x1540M
expect_status 2 "$TIERCTL" plan --layers 8 --gpu 4x24G
expect_text '--gpu says 4 GPUs, over which 1 rank cannot be spread evenly: 1 GPU would do, or another --world-size'
expect_status 2 "$TIERCTL" plan --layers 8 --world-size 8 --local-ranks 6 --gpu 4x24G
expect_text '6 ranks cannot be spread evenly: 3 GPUs would do, or another --local-ranks'
for gpus in 0x24G 4x 4x24Q; do
	expect_status 2 "$TIERCTL" plan --layers 8 --gpu "$gpus"
	expect_text "--gpu cannot be '$gpus'; it takes how many there are and the memory of each, such as 4x24G"
done
for rate in 0 0.01 1001 25G fast; do
	expect_status 2 "$TIERCTL" plan --layers 8 --gpu 24G --pcie "$rate"
	expect_text "--pcie cannot be '$rate'; it takes GB/s from 0.1 to 1000"
done
for flag in '--pcie 25' '--activations 1G'; do
	# shellcheck disable=SC2086 # a flag and its value
	expect_status 2 "$TIERCTL" plan --layers 8 $flag
	expect_text '--activations and --pcie are of GPUs'
done
expect_status 1 env TIERD="$scratch/none" "$TIERCTL" plan --layers 8
expect_text "tierd, which plans, is not at $scratch/none"
expect_status 1 env TIERD=/bin/true "$TIERCTL" plan --layers 8
expect_text 'of another version'
expect_status 1 "$TIERD" --plan </dev/null
expect_text 'tierctl plan asks for one'
expect_status 3 "$TIERCTL" plan --like gpt

tierd_start --log-level debug
expect_status 0 "$TIERCTL" ping
expect_text 'answers in'
expect_status 0 "$TIERCTL" status
expect_text "pid $tierd_pid"
expect_status 0 "$TIERCTL" tiers
expect_text "$nvme"
expect_status 0 "$TIERCTL" jobs
expect_status 1 "$TIERCTL" units no-such-job
expect_status 1 "$TIERCTL" jobs no-such-job
expect_status 0 "$TIERCTL" status
expect_text ' pinned'
expect_status 0 env TIERD_SOCKET=/none "$TIERCTL" ping --socket "$TIERD_SOCKET"
expect_status 0 env TIERD_SOCKET=/none "$TIERCTL" ping "--socket=$TIERD_SOCKET" --json
for verb in help status 'status --json' jobs tiers 'plan --parameters 1B --world-size 2'; do
	# shellcheck disable=SC2016,SC2086 # a verb and its arguments
	expect_status 1 sh -c '"$0" "$@" >/dev/full' "$TIERCTL" $verb
	expect_text 'No space left on device'
done
expect_status 3 "$TIERCTL" --socket "$scratch/none" ping
json "j['pid'] == $tierd_pid and j['host']['budget_bytes'] == 256 << 20" status
json "j['nvme'][0]['path'] == '$nvme' and j['nvme'][0]['capacity_bytes'] == 1 << 30" tiers
json 'j == []' jobs
json 'j["microseconds"] > 0' ping
# What is free is asked from the daemon.
json 'j["host_free_bytes"] <= 256 << 20 and "fits" in j["stages"][0]["placements"][0]' \
	plan --parameters 1M --world-size 2
# So is how many connections a user may have: each rank takes one.
json 'j["connections_per_user"] == 16' plan --parameters 1M --world-size 2
expect_status 0 "$TIERCTL" plan --parameters 1M --world-size 17
expect_text '17 ranks take a connection each, but a user may have 16 here'
expect_status 1 "$TIERCTL" plan --like gpt
expect_text 'there is no job gpt that you may see'
expect_status 0 "$TIERCTL" plan --parameters 1M --world-size 17 --local-ranks 16
expect_text 'tierd trains on one node so far'
case $output in *connections*) fail "16 ranks find room: $output" ;; esac
