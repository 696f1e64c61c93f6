"""Another user: the victim's job is not there for him, whatever he asks."""
import os

from hostile_cases.case import Case, GREETED
from messages import DRAIN, DROP, EVICT, JOBS, LEASES, MAP, OPEN, READER_OPEN, RELEASE, SCRUB, TENSORS, TRACE, UNITS, VERIFY, Client, codes, data, number

STRANGER = 60001
OWNER = os.getuid()
code = codes()

of_owner = {DROP: (2, 3), MAP: (2, 3), LEASES: (2, 3), EVICT: (2, 3), RELEASE: (2, 3), READER_OPEN: (2, 3), VERIFY: (2, 3), SCRUB: (2, 3), TRACE: (2, 3), TENSORS: (2, 3),
            OPEN: (41, 42)}
what = {
    DROP: "to drop", MAP: "to map", LEASES: "for its leases", EVICT: "to evict from", RELEASE: "to release", READER_OPEN: "to read", OPEN: "to open",
    UNITS: "for its units", VERIFY: "to verify", SCRUB: "to scrub", TRACE: "to trace", TENSORS: "for its tensors",
}


def as_stranger(act):
    """With a connection of another user."""

    def run(client):
        os.seteuid(STRANGER)
        try:
            stranger = Client()
        finally:
            os.seteuid(OWNER)
        act(stranger)
        stranger.close()

    return run


def asked(field, body, error, words):
    def act(client):
        status, text, _ = client.call(field, body)
        assert status == code[error] and words in text, (status, text)

    return as_stranger(act)


def sees_nothing(client):
    status, _, body = client.call(JOBS, b"")
    assert status == 0 and not body, body


def opens_his_own(client):
    """A job of the same name is another one, and the victim's goes on."""
    status, text, _ = client.call(OPEN, data(1, "victim") + number(3, 1) + number(4, 3))
    assert status == 0, text


def cases():
    if os.getuid() != 0:
        return
    for field, (has_owner, owner) in of_owner.items():
        named = data(1, "victim") + (number(3, 1) + number(4, 3) if field == OPEN else b"")
        theirs = named + number(has_owner, 1) + number(owner, OWNER)
        yield Case(f"another user's job {what[field]}", GREETED, asked(field, theirs, "ENOENT", "no job victim"), None)
        if field != OPEN:
            yield Case(f"another user's job {what[field]}, without the owner", GREETED,
                       asked(field, named, "ENOENT", "no job victim"), None)
        if field == DROP:
            yield Case("another user's job to drop by force", GREETED, asked(field, theirs + number(4, 1), "ENOENT", "no job"), None)
        if field == OPEN:
            for extra, how in ((number(5, 3), "to replace"), (number(14, 1), "to take over"), (number(5, 2), "to resume")):
                yield Case(f"another user's job {how}", GREETED, asked(field, theirs + extra, "ENOENT", "no job victim"), None)
    yield Case("another user's job for its units", GREETED, asked(UNITS, data(1, "victim"), "ENOENT", "no job victim"), None)
    yield Case("a drain by another user", GREETED, asked(DRAIN, b"", "EPERM", ""), None)
    yield Case("the end of a drain by another user", GREETED, asked(DRAIN, number(1, 1), "EPERM", ""), None)
    yield Case("the jobs that another user sees", GREETED, as_stranger(sees_nothing), None)
    yield Case("another user's job of the same name", GREETED, as_stranger(opens_his_own), None)


CASES = list(cases())
