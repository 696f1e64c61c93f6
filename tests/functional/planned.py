"""What tierctl plan says of a job is what the job takes, to the byte; and the least that it names is accepted, a page less
is not. planned.py MODE GPT SCRATCH NVME, with a daemon that $TIERD_SOCKET names, or with none.
"""
import contextlib
import itertools
import json
import os
import signal
import struct
import subprocess
import sys

from programs import TIERCTL, tierctl

TIERD = os.environ["TIERD"]
GPT, SCRATCH, NVME = sys.argv[2:5]
PAGE, MIB = 4096, 1 << 20
SMALL = ["--layers", "2", "--width", "64", "--context", "16"]
README = ["--layers", "8", "--width", "256"]
LARGE = ["--layers", "24", "--width", "512"]  # 75.8 million parameters
# Of what differs in sizes alone one in so many is enough with sanitizers.
PART = int(os.environ.get("TIERD_SEEDS_PART", "1"))


def shown(*arguments):
    return json.loads(tierctl("--json", *arguments))


def plan(model, *flags):
    return shown("plan", *model, *flags)


def train(model, *flags):
    """One step of a job, with as little to compute as there can be."""
    command = [GPT, *model, "--heads", "2", "--batch", "1", "--steps", "1", "--threads", "1", "--timeout", "100",
               "--data", SCRATCH + "/data", *flags]
    return subprocess.run(command, capture_output=True, text=True)


def job_of(name):
    return next(job for job in shown("jobs") if job["name"] == name)


def place_of(stage, job):
    """The plan for the places that the job has."""
    return next(place for place in stage["placements"]
                if (place["parameters"], place["optimizer"]) == (job["parameter_placement"], job["optimizer_placement"]))


def is_as_planned(planned, name, what):
    job = job_of(name)
    stage = planned["stages"][0]
    place = place_of(stage, job)
    assert planned["is_exact"] and stage["stage"] == job["stage"] and place["fits"], (what, planned, job)
    assert place["host_bytes"] == job["promised_bytes"], (what, place, job)
    assert place["nvme_bytes"] == job["nvme_bytes"], (what, place, job)
    assert place["gradients"] == job["gradient_placement"], (what, place, job)
    parts = [place[f"host_{part}_bytes"] for part in ("parameter", "gradient", "optimizer", "buffer", "other")]
    assert min(parts) >= 0 and sum(parts) == place["host_bytes"], (what, place)


def drop(name):
    tierctl("drop", name, "--yes")


def trained_as_planned(model, ranks, stage, shared, of_plan, of_gpt):
    what = (model, ranks, stage, shared, of_plan, of_gpt)
    planned = plan(model, "--world-size", str(ranks), "--stage", str(stage), *shared, *of_plan)
    done = train(model, "--ranks", str(ranks), "--stage", str(stage), *shared, *of_gpt)
    assert done.returncode == 0, (what, done.stderr)
    is_as_planned(planned, "gpt", what)
    # A job like it takes as much, whatever makes its units.
    is_as_planned(plan(["--like", "gpt"], "--stage", str(stage)), "gpt", ("like", what))
    drop("gpt")


def all_ways():
    """Of the small model everything; of the README's what its readers do."""
    for ranks, stage in itertools.product((1, 4), range(4)):
        yield SMALL, ranks, stage, [], [], []
    for parameters, optimizer in itertools.product(("host", "nvme", "auto"), repeat=2):
        yield SMALL, 2, 3, [], [], ["--parameters-on", parameters, "--optimizer-on", optimizer]
    for optimizer in "host", "nvme":
        yield SMALL, 1, 1, [], [], ["--parameters-on", "host", "--optimizer-on", optimizer]
    for moments in "bf16", "int8":
        yield SMALL, 2, 2, ["--moments", moments], [], []
    for gradients, stage in itertools.product(("host", "nvme"), (2, 3)):
        yield README, 2, stage, [], ["--gradients", gradients], ["--gradients-on", gradients]
    for room in "1", "2M":
        yield README, 2, 3, [], ["--gradient-bytes", room], ["--gradient-bytes", room]
    for optimizer in "adam", "lion":
        yield SMALL, 1, 3, ["--optimizer", optimizer], [], []
    for optimizer, momentum in ("sgd", "0"), ("momentum", "0.9"):
        yield SMALL, 1, 3, [], ["--optimizer", optimizer], ["--optimizer", "sgd", "--momentum", momentum]
    yield SMALL, 1, 3, ["--snapshots", "3"], [], []
    yield SMALL, 1, 3, ["--durability", "none"], [], []
    yield SMALL, 1, 3, ["--durability", "none"], [], ["--optimizer-on", "host", "--parameters-on", "host"]
    # What is pushed twice is summed.
    yield SMALL, 1, 3, ["--micro-batches", "2"], [], []
    for form in "fp16", "fp32":
        yield README, 1, 2, ["--format", form], [], []
    yield README, 4, 3, [], [], []
    # Tiny, and with layers that are some extents long.
    yield ["--layers", "1", "--width", "16", "--context", "1"], 1, 3, [], [], []
    yield ["--layers", "1", "--width", "512"], 2, 3, [], [], []


def jobs():
    for way in all_ways():
        trained_as_planned(*way)


# ---- The least ----

@contextlib.contextmanager
def daemon(host, nvme):
    """Of exactly so many bytes, which knows no jobs, and leaves none."""
    path, state = NVME + "/least", SCRATCH + "/least"
    os.makedirs(path, exist_ok=True)
    command = [TIERD, "--socket", os.environ["TIERD_SOCKET"], "--state-dir", state, "--file-system", "any",
               "--host-budget", str(host), "--nvme", f"{path}:{nvme}"]
    with open(SCRATCH + "/log", "a", encoding="utf-8") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            while subprocess.run([TIERCTL, "ping"], capture_output=True).returncode != 0:
                assert process.poll() is None, "tierd has ended"
            yield
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, process.returncode
    subprocess.run(["rm", "-r", path, state], check=True)


def expect(accepted, words, model, *flags):
    """What is accepted is prepared; it may have no byte left for its first blob, or for gradients that wait for other ranks."""
    done = train(model, *flags)
    assert (done.returncode != 0 and words in done.stderr) != accepted, (accepted, model, flags, done.stderr)


LEAST = [
    (SMALL, 1, 3, []), (SMALL, 4, 3, []), (SMALL, 2, 1, []), (README, 2, 2, ["--moments", "int8"]),
    # Where one staging buffer more is had, there is less for jobs.
    (["--layers", "14", "--width", "256"], 4, 3, []),
]


def least_budgets():
    for model, ranks, stage, shared in LEAST[::PART]:
        flags = ["--stage", str(stage), *shared]
        places = plan(model, "--world-size", str(ranks), *flags)["stages"][0]["placements"]
        for place in places[:: 3 if stage == 3 else 1]:
            least = place["least"]
            asked = ["--ranks", str(ranks), *flags, "--parameters-on", place["parameters"], "--optimizer-on", place["optimizer"]]
            for more, accepted in (0, True), (5 * MIB, True), (-PAGE, False):
                with daemon(least["host_budget"] + more, 8 << 30):
                    expect(accepted, "it needs at least", model, *asked)
                    if more == 0:
                        assert job_of("gpt")["promised_bytes"] == least["host_bytes"], (place, job_of("gpt"))


def least_disks():
    for model, ranks, stage, shared in LEAST[:2]:
        flags = ["--stage", str(stage), *shared]
        place = plan(model, "--world-size", str(ranks), *flags)["stages"][0]["placements"][-1]
        for more, accepted in (0, True), (-PAGE, False):
            with daemon(2 << 30, place["nvme_path_bytes"] + more):
                expect(accepted, "are left there", model, "--ranks", str(ranks), *flags)


def own_budgets():
    for model, ranks, stage, shared in LEAST[:3]:
        flags = ["--stage", str(stage), *shared]
        place = plan(model, "--world-size", str(ranks), *flags)["stages"][0]["placements"][-1]
        for more, accepted in (0, True), (-PAGE, False):
            budget = ["--host-budget", str(place["least"]["host_bytes"] + more)]
            own = plan(model, "--world-size", str(ranks), *flags, *budget)["stages"][0]["placements"][-1]
            assert own["least"] == place["least"], (own, place)
            assert own["fits"] == accepted, own
            expect(accepted, own.get("refusal", "the job's host_budget"), model, "--ranks", str(ranks), *flags, *budget)
            if accepted:
                drop("gpt")


def idle():
    """What idle jobs hold is no reason to refuse: they give it up."""
    with daemon(48 * MIB, 8 << 30):
        done = train(README, "--ranks", "4", "--job", "former")
        assert done.returncode == 0, done.stderr
        assert job_of("former")["promised_bytes"] > 24 * MIB, job_of("former")
        planned = plan(README, "--world-size", "4", "--stage", "3")
        done = train(README, "--ranks", "4", "--job", "next")
        assert done.returncode == 0, done.stderr
        is_as_planned(planned, "next", "beside an idle job")


# ---- What was wrong ----

def refused():
    """75.8 million parameters on 1900 MiB were planned with 1.69 GiB, and refused."""
    planned = plan(LARGE, "--stage", "3")
    assert not any(place["fits"] for place in planned["stages"][0]["placements"]), planned
    place = planned["stages"][0]["placements"][-1]
    done = train(LARGE, "--stage", "3")
    assert done.returncode != 0 and place["refusal"] in done.stderr, (place, done.stderr)
    assert f"it needs {-(-place['nvme_bytes'] * 10 >> 30) / 10} GiB" in place["refusal"], place
    # What helps is found, and does.
    helped = [change["change"] for change in planned["changes"] if change["fits"]]
    assert "--moments int8" in helped and "all of these" in helped, planned["changes"]
    smaller = plan(LARGE, "--stage", "3", "--moments", "int8")["stages"][0]["placements"]
    assert all(place["fits"] for place in smaller), smaller


def unit(name, *elements):
    return {"name": name, "tensors": [{"name": f"{name}.{i}", "format": "fp32", "shape": [count]} for i, count in enumerate(elements)]}


def sizes():
    """GPT-2 with an embedding of 150 MiB: all units were taken to be as large. It runs in 658 MiB."""
    width = 768
    layers = [unit(f"h.{i}", *4 * [width], 3 * width * width, 3 * width, width * width, width, 4 * width * width, 4 * width,
                   4 * width * width, width) for i in range(12)]
    units = [unit("wte", 50304 * width), unit("wpe", 1024 * width), *layers, unit("ln_f", width, width)]
    with open(SCRATCH + "/units.json", "w", encoding="utf-8") as file:
        json.dump(units, file)
    planned = plan(["--units", SCRATCH + "/units.json"], "--stage", "3", "--host", "712M", "--nvme", "8G")
    place = planned["stages"][0]["placements"][-1]
    assert planned["units"] == 15 and planned["parameters"] == 124475904, planned
    assert place["fits"] and place["least"]["host_bytes"] <= 659 * MIB, place
    units[0]["tensors"][0]["alias"] = "head"
    with open(SCRATCH + "/units.json", "w", encoding="utf-8") as file:
        json.dump(units, file)
    tied = plan(["--units", SCRATCH + "/units.json"], "--stage", "3", "--host", "712M", "--nvme", "8G")
    assert tied["stages"][0]["placements"][-1]["host_bytes"] > place["host_bytes"], (tied, place)
    for wrong in "", "[]", "{", '[{"tensors": []}]', '[{"name": "u", "tensors": [{"name": "t", "format": "fp8", "shape": [1]}]}]', \
            '[{"name": "u", "tensors": [{"name": "t", "format": "fp32", "shape": [-1]}]}]':
        with open(SCRATCH + "/wrong.json", "w", encoding="utf-8") as file:
            file.write(wrong)
        done = subprocess.run([TIERCTL, "plan", "--units", SCRATCH + "/wrong.json"], capture_output=True, text=True)
        assert done.returncode == 1 and "wrong.json" in done.stderr, (wrong, done)


def bounds():
    """Of a model of which only the size is known they are bounds."""
    shapes = (2, 64, 16), (8, 256, 128), (24, 512, 128), (12, 768, 1024), (96, 256, 128), (48, 1600, 1024)
    ways = itertools.product(("bf16", "fp32"), ("1", "4"), shapes)
    for form, ranks, (layers, width, context) in itertools.islice(ways, 0, None, PART):
        flags = ["--world-size", ranks, "--format", form]
        known = plan(["--layers", str(layers), "--width", str(width), "--context", str(context)], "--blobs", "0", *flags)
        largest = max(12 * width * width + 13 * width, (256 + context) * width)
        for more in [], ["--largest-unit", str(largest)]:
            guessed = plan(["--parameters", str(known["parameters"])], *flags, *more, *(["--pushed-once"] if ranks == "1" else []))
            assert known["is_exact"] and not guessed["is_exact"]
            for one, other in zip(known["stages"], guessed["stages"]):
                for exact, rough in zip(one["placements"], other["placements"]):
                    for key in "host_bytes", "nvme_bytes":
                        assert rough["at_best"][key] <= exact[key] <= rough[key], (layers, width, form, ranks, more, key, exact, rough)


# ---- Files ----

def files():
    """As an import makes of them."""
    tensors = {"embedding.weight": [1 << 21], "layers.0.weight": [300, 1000], "layers.0.bias": [300], "layers.1.weight": [300, 1000],
               "layers.1.bias": [300], "head.weight": [7]}
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 4 * (shape[0] * shape[1] if len(shape) > 1 else shape[0])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    packed = json.dumps(header).encode()
    path = SCRATCH + "/model.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(packed)) + packed)
        file.truncate(8 + len(packed) + offset)
    for optimizer, form in ("adamw", "fp32"), ("lion", "bf16"):
        planned = plan([path], "--optimizer", optimizer, "--format", form, "--stage", "3")
        done = subprocess.run([TIERCTL, "import", "gpt", path, "--optimizer", optimizer, "--format", form], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        is_as_planned(planned, "gpt", (optimizer, form))
        drop("gpt")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
