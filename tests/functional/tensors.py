"""tierctl tensors lists what a job's ranks have defined, in pages, and where it is."""
import json

import messages
from messages import DEFINE, READY, Client, data, number, real, varint
from programs import tierctl

FORMATS = {"fp32": (1, 4), "bf16": (2, 2), "fp16": (3, 2), "bytes": (4, 1)}
# More than one answer has room for, in one unit and over several.
MANY = 1500


def tensors(*arguments):
    return json.loads(tierctl("--json", "tensors", *arguments))


def tensor(name, shape, form="fp32", group=0, frozen=0, alias="", part=None):
    """What is defined, and what is to be shown of it."""
    code, size = FORMATS[form]
    elements = 1
    for rows in shape:
        elements *= rows
    shown = {"name": name, "format": form, "shape": shape, "elements": elements, "bytes": elements * size, "group": group,
             "is_frozen": bool(frozen)}
    body = data(1, name) + number(3, code) + data(4, b"".join(map(varint, shape))) + number(5, group) + number(6, frozen)
    body += number(7, 2 * (form != "bytes"))
    if alias:
        body += data(2, alias)
        shown["alias"] = alias
    if part:
        body += data(10, part[0]) + number(11, part[1]) + number(12, part[2])
        shown |= {"slice_of": part[0], "slice_row": part[1], "slice_rows": part[2]}
    return body, shown


def define(client, job, unit, name, *defined):
    """Returns what is to be shown of the unit."""
    code, text, _ = client.call(DEFINE, number(1, job) + data(2, name) + b"".join(data(3, body) for body, _ in defined))
    assert code == 0, text
    return [shown | {"unit": unit, "unit_name": name} for _, shown in defined]


def open_job(client, name):
    code, text, opened = client.call(
        messages.OPEN, data(1, name) + number(3, 1) + number(4, 3) + number(12, 2) + number(14, 1) + data(16, real(4, 1e-8)) * 2
    )
    assert code == 0, text
    return opened[1]


def without_places(listed):
    return [{key: value for key, value in one.items() if key not in ("state", "tiers")} for one in listed]


CLIENT = Client()
JOB = open_job(CLIENT, "defined")
assert tensors("defined") == []
ALL = define(
    CLIENT, JOB, 0, "embedding", tensor("wte", [4, 8], form="bf16", alias="lm_head"),
    tensor("wpe.0", [2, 8], part=("wpe", 0, 5)), tensor("wpe.1", [3, 8], part=("wpe", 2, 5)),
)
ALL += define(CLIENT, JOB, 1, "many", *(tensor(f"many.{i}", [i % 7 + 1], form="fp16", group=i % 2) for i in range(MANY)))
for UNIT in range(2, 40):
    ALL += define(CLIENT, JOB, UNIT, f"unit{UNIT}", *(tensor(f"unit{UNIT}.{i}", [2, 3]) for i in range(50)))
ALL += define(CLIENT, JOB, 40, "1", tensor("frozen", [100], form="bf16", frozen=1), tensor("scalar", []))

# Also of a job that has no values yet.
LISTED = tensors("defined")
assert without_places(LISTED) == ALL
assert {(one["state"], one["tiers"]) for one in LISTED} == {("forming", "")}

# A unit is meant by its name, and by its number if none is called so.
assert without_places(tensors("defined", "embedding")) == ALL[:3] == without_places(tensors("defined", "0"))
assert without_places(tensors("defined", "many")) == ALL[3 : 3 + MANY]
assert without_places(tensors("defined", "1")) == ALL[-2:] == without_places(tensors("defined", "40"))
for UNIT in "41", "nosuch", "":
    assert f"job defined has no unit '{UNIT}'" in tierctl("tensors", "defined", UNIT, status=1)
assert json.loads(tierctl("--json", "tensors", "defined", "41", status=1))["code"] == "ENOENT"

# For people.
ROWS = tierctl("tensors", "defined", "embedding").splitlines()
assert ROWS[0].split() == ["TENSOR", "FORMAT", "SHAPE", "BYTES", "GROUP", "TIERS", "UNIT", "IN", "UNIT", "ALIAS", "ROWS"], ROWS
assert ROWS[1].split() == ["wte", "bf16", "[4,", "8]", "64", "B", "0", "forming", "0", "embedding", "lm_head", "-"], ROWS
assert ROWS[3].endswith("2 to 4 of 5 of wpe"), ROWS
assert " frozen " in tierctl("tensors", "defined", "1").splitlines()[1]

# Where they are, once they have values.
code, text, _ = CLIENT.call(READY, number(1, JOB) + number(2, 20000))
assert code == 0, text
LISTED = tensors("defined")
assert without_places(LISTED) == ALL
UNITS = {unit["unit"]: (unit["state"], unit["tiers"]) for unit in json.loads(tierctl("--json", "units", "defined"))}
assert all((one["state"], one["tiers"]) == UNITS[one["unit"]] for one in LISTED)
assert "forming" not in {one["state"] for one in LISTED} and {one["tiers"] for one in LISTED} <= {"nvme", "host+nvme"}

# Bytes, too.
RAW = define(CLIENT, open_job(CLIENT, "raw"), 0, "packed", tensor("packed.weight", [7], form="bytes", frozen=1))
assert without_places(tensors("raw")) == RAW
CLIENT.close()
