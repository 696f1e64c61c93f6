"""While tierd drains, the jobs that run go on, and no others begin."""
import json
import os
import subprocess

from users import ADMINISTRATOR, ALICE, BOB, Rank, node, refused, tierctl, train

DRAINS = "tierd drains: job"

train(ALICE, job="idle")
running = Rank(ALICE, job="running").ready()

tierctl(ALICE, "drain", "--timeout", "0", status=1, says=["for its administrators to drain"])
assert not node()["is_draining"]
tierctl(ADMINISTRATOR, "drain", "--timeout", "soon", status=2, says=["'soon'"])
tierctl(ADMINISTRATOR, "drain", "now", status=2, says=["'now'"])

# Not done in time: it drains all the same.
tierctl(ADMINISTRATOR, "drain", "--timeout", "0", status=1, says=["1 rank has not left"])
assert node()["is_draining"] and node()["ranks"] == 1
tierctl(ALICE, "status", says=["no new ones: tierd drains"])
refused(BOB, "ESHUTDOWN", DRAINS, "--undo", job="new")
refused(ALICE, "ESHUTDOWN", DRAINS, job="idle")

# The daemon's own user may drain, too, and waits for the last rank.
waiting = subprocess.Popen(
    [os.environ["TIERCTL"], "drain", "--json"], stdout=subprocess.PIPE, user=0, text=True
)
running.leave()
assert json.loads(waiting.communicate()[0]) == {"is_draining": True, "ranks": 0} and waiting.returncode == 0

tierctl(BOB, "drain", "--undo", status=1, says=["for its administrators"])
tierctl(ADMINISTRATOR, "drain", "--undo")
assert not node()["is_draining"]
train(ALICE, job="idle")
for name in ("idle", "running"):
    tierctl(ALICE, "drop", name, "--yes")
