#!/usr/bin/env python3
"""A user gives no unit and no tensor of a job that another one may see a name that changes what that one sees."""

import json

from harness import Node
from messages import DEFINE, LEAVE, OPEN, READY, Client, codes, data, number, varint

READ = 1
# They turn a line around, end it, or are seen by nobody.
HOSTILE = "a\u202eb", "a\u2028b", "a\u2029b", "a\u200db", "a\x1b[2J", "a\nb"


def define(client, job, unit, tensor):
    tensor = data(1, tensor) + number(3, 1) + data(4, varint(1000)) + number(6, 0) + number(7, 2)
    return client.call(DEFINE, number(1, job) + data(2, unit) + data(3, tensor))[:2]


def answers(group):
    """Of a job that is shared with it: status and text for each hostile name, and for a good one at the end."""
    client = Client()
    options = number(3, 1) + number(4, 3) + number(43, READ) + number(44, group)
    status, text, opened = client.call(OPEN, data(1, "shown") + options)
    assert status == 0, text
    said = [define(client, opened[1], *names) for name in HOSTILE for names in ((name, "t"), ("u", name))]
    said.append(define(client, opened[1], "Einheit \u00fc", "Tensor \u00fc"))
    status, text, _ = client.call(READY, number(1, opened[1]) + number(2, 20000))
    assert status == 0, text
    client.call(LEAVE, number(1, opened[1]))
    return said


with Node() as daemon:
    daemon.start()
    *refused, fine = daemon.alice.run(answers, daemon.account.gid)
    assert fine[0] == 0, fine
    for code, reason in refused:
        assert code == codes()["EINVAL"] and "not printable" in reason, (code, reason)
    shown = daemon.bob.tierctl("--json", "units", "shown", "--user", str(daemon.alice.uid))
    assert [unit["name"] for unit in json.loads(shown)] == ["Einheit \u00fc"], shown
    daemon.stop()
