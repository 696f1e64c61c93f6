"""Parts to verify, and the scrub: of what is not there, many of them, and for somebody who goes."""
from hostile_cases.case import DEFINED, LEFT, FINE, READY, Answered, Case
from hostile_cases.readers import answers
from messages import DROP, SCRUB, VERIFY, codes, data, number

code = codes() | {"OK": 0}
PART = data(1, "hostile")


def one_at_a_time(client):
    """Others are refused meanwhile; each is answered once."""
    got = answers(client, *(client.send(VERIFY, PART) for _ in range(50)))
    assert set(got) <= {0, code["EBUSY"]} and 0 in got, got


def leaves(client):
    client.send(VERIFY, PART)


def loses_the_job(client):
    got = answers(client, client.send(VERIFY, PART), client.send(DROP, PART + number(4, 1)))
    assert got[0] in (0, code["ENOENT"]) and got[1] == 0, got


CASES = [
    Case("a part to verify of a job that has no state yet", DEFINED, (VERIFY, PART), Answered("EBUSY", "no values yet")),
    Case("a part to verify that is not there", READY, (VERIFY, PART + number(4, 1 << 40)),
         Answered("EINVAL", "and no number 1099511627776")),
    Case("a part to verify from 2^64-1 on", READY, (VERIFY, PART + number(4, -1)), Answered("EINVAL", "and no number")),
    Case("a part to verify of another job of that name", READY, (VERIFY, PART + number(5, 1 << 50)),
         Answered("ENOENT", "it was replaced")),
    Case("parts to verify, many at once", READY, one_at_a_time, None),
    Case("a part to verify, by one that goes", READY, leaves, None),
    Case("a part to verify of a job that is dropped meanwhile", LEFT, loses_the_job, None),
    *(Case(f"a scrub that does {action}", READY, (SCRUB, PART + number(4, action)), Answered("EINVAL", "nothing that a scrub does"))
      for action in (3, (1 << 32) - 1)),
    Case("a scrub of a job that has no state yet", DEFINED, (SCRUB, PART), Answered("EBUSY", "no values yet")),
    Case("a scrub of all, at once", READY, (SCRUB, number(4, 1)), FINE),
    Case("a scrub of a job at once, by one that goes", READY, (SCRUB, PART + number(4, 1)), FINE),
]
