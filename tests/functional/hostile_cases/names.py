"""Names: of jobs, units, tensors, phases and states, with what a path, a terminal, a log or a parser would take for something."""
from hostile_cases.case import DEFINED, FINE, GREETED, JOB, OPENED, READY, Answered, Case
from messages import DEFINE, DROP, EVICT, LEASES, MAP, OPEN, PHASE, READ, READER_OPEN, RELEASE, SCRUB, UNITS, VERIFY, data, number, varint

NOT_ALLOWED = Answered("EINVAL", "is not allowed: 1 to 63 of A-Z, a-z")

jobs = {
    "is empty": b"",
    "has a slash": b"a/b",
    "is the folder above": b"..",
    "is this folder": b".",
    "leads out of its folder": b"../../etc/passwd",
    "has two dots in it": b"a..b",
    "begins with a dot": b".hidden",
    "begins with a dash": b"-rf",
    "begins with an underscore": b"_hostile",
    "has a blank": b"a b",
    "ends a line": b"a\nb",
    "has a tab": b"a\tb",
    "has an escape sequence": b"\x1b[2J",
    "has a quote": b"a\"b",
    "has a NUL in front": b"\x00hostile",
    "is not UTF-8": b"\xff\xfe",
    "has letters beyond ASCII": "hé".encode(),
    "is a format": b"%s%n",
    "is a variable of the shell": b"$(reboot)",
    "is one byte too long": b"x" * 64,
    "has 256 bytes": b"x" * 256,
    "has 100,000 bytes": b"x" * 100000,
}

# Why a name of a unit or a tensor is refused.
UNPRINTABLE = "a name with a character that is not printable, or that is not UTF-8"
texts = {
    "is empty": (b"", "a name of 0 bytes"),
    "is one byte too long": (b"x" * 129, "a name of 129 bytes"),
    "has 100,000 bytes": (b"x" * 100000, "a name of 100000 bytes"),
    "ends a line": (b"a\nb", UNPRINTABLE),
    "has an escape sequence": (b"\x1b[2J", UNPRINTABLE),
    "has a delete": (b"a\x7fb", UNPRINTABLE),
    "has a control character beyond ASCII": (b"a\xc2\x9bb", UNPRINTABLE),
    "turns the line around": ("a\u202eb".encode(), UNPRINTABLE),
    "ends a line beyond ASCII": ("a\u2028b".encode(), UNPRINTABLE),
    "ends a paragraph": ("a\u2029b".encode(), UNPRINTABLE),
    "has a joiner that nobody sees": ("a\u200db".encode(), UNPRINTABLE),
    "has a character for private use": ("a\ue000b".encode(), UNPRINTABLE),
    "has a character that is not assigned": ("a\uffffb".encode(), UNPRINTABLE),
    "ends in the middle of a character": (b"a\xe2\x82", UNPRINTABLE),
    "has a byte that no character has": (b"a\xff", UNPRINTABLE),
    "has an overlong slash": (b"a\xc0\xafb", UNPRINTABLE),
    "has half of a pair of surrogates": (b"a\xed\xa0\x80", UNPRINTABLE),
    "has a character beyond Unicode": (b"a\xf4\x90\x80\x80", UNPRINTABLE),
}


def tensor(name=b"t", **more):
    optional = {"alias": 2, "slice_of": 10}
    return data(1, name) + number(3, 1) + data(4, varint(10)) + number(7, 2) + b"".join(
        data(optional[key], value) for key, value in more.items()
    )


def unit(name, *tensors):
    return DEFINE, number(1, JOB) + data(2, name) + b"".join(data(3, each) for each in tensors)


def defined():
    for what, (name, why) in texts.items():
        refused = Answered("EINVAL", why)
        yield Case(f"a unit whose name {what}", OPENED, unit(name, tensor()), refused)
        yield Case(f"a tensor whose name {what}", OPENED, unit("u", tensor(name)), refused)
        if name:
            yield Case(f"an alias that {what}", OPENED, unit("u", tensor(alias=name)), refused)
            yield Case(f"a slice of a tensor whose name {what}", OPENED, unit("u", tensor(slice_of=name)), refused)


def asked():
    for field, what in ((DROP, "to drop"), (MAP, "to map"), (LEASES, "for leases"), (EVICT, "to evict"), (RELEASE, "to release"), (UNITS, "for units"),
                        (READER_OPEN, "to read"), (VERIFY, "to verify"), (SCRUB, "to scrub")):
        for name in (b"../../etc/passwd", b"a\nb", b"\xff", b"%s%n", b"x" * 100000):
            shown = name[:20].decode(errors="replace").replace("\n", " ")
            yield Case(f'a job "{shown}" {what}', GREETED, (field, data(1, name)), Answered("ENOENT", "there is no job"))


def sources():
    opened = data(1, "hostile") + number(3, 1) + number(4, 3)
    for what, name in jobs.items():
        if name.strip(b"\x00hostile"):
            yield Case(f"a source whose name {what}", GREETED, (OPEN, opened + data(200, name)),
                       Answered("EINVAL", "is no name of a job"))
    yield Case("a source that nobody has", GREETED, (OPEN, opened + data(200, "nobody")), Answered("ENOENT", "no job nobody"))
    yield Case("a source of a user that is not there", GREETED,
               (OPEN, opened + data(200, "hostile") + number(202, 1) + number(203, 4294967294)), Answered("ENOENT", "no job hostile"))
    yield Case("a job that is its own source", GREETED, (OPEN, opened + data(200, "hostile")), Answered("EINVAL", "the job itself"))
    yield Case("a snapshot as a source, of a job with a long name", GREETED, (OPEN, opened + data(200, "x" * 100000 + "@y")),
               Answered("EINVAL", "is no name of a job"))
    yield Case("a snapshot with a long name as a source", GREETED, (OPEN, opened + data(200, "x@" + "y" * 100000)),
               Answered("EINVAL", "is no name of a job"))
    yield Case("a snapshot as a source, of a job that nobody has", GREETED, (OPEN, opened + data(200, "nobody@y")),
               Answered("ENOENT", "no job nobody"))


CASES = [
    *(Case(f"a job whose name {what}", GREETED, (OPEN, data(1, name) + number(3, 1)), NOT_ALLOWED)
      for what, name in jobs.items()),
    *defined(),
    *asked(),
    *sources(),
    Case("two tensors of one name", OPENED, unit("u", tensor(), tensor()), Answered("EEXIST", 'already a tensor "t"')),
    Case("a tensor of another unit's name", DEFINED, unit("u", tensor(b"unit0")), Answered("EEXIST", 'already a tensor "unit0"')),
    Case("a phase without a name", READY, (PHASE, number(1, JOB)), Answered("EINVAL", "1 to 128 bytes")),
    Case("a phase whose name is one byte too long", READY, (PHASE, number(1, JOB) + data(2, b"x" * 129)),
         Answered("EINVAL", "1 to 128 bytes")),
    Case("a phase whose name is of 100,000 bytes", READY, (PHASE, number(1, JOB) + data(2, b"x" * 100000)),
         Answered("EINVAL", "1 to 128 bytes")),
    Case("a phase whose name turns the line around", READY, (PHASE, number(1, JOB) + data(2, "a\u202eb".encode())),
         Answered("EINVAL", "printable")),
    Case("a state whose name is empty", READY, (READ, number(1, JOB) + number(6, 1)), Answered("ENODATA", 'no state ""')),
    Case("a state whose name is a path", READY, (READ, number(1, JOB) + data(4, "../m") + number(6, 1)),
         Answered("ENODATA", 'no state "../m"')),
    Case("a state whose name is of 100,000 bytes", READY, (READ, number(1, JOB) + data(4, b"m" * 100000) + number(6, 1)),
         Answered("ENODATA", "no state")),
    Case("the page of the node, of a user that is not there", GREETED, (MAP, number(2, 1) + number(3, 4294967294)), FINE),
]
