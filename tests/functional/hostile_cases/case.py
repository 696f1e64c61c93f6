"""A row of the table of hostile cases: what a client at some stage does, and what comes of it."""
from collections import namedtuple

# How far the client has come before: connected, greeted, with a job open, with its units defined, with the job ready,
# after it has left that job, and with a reader of it beside the rank. The job is number JOB on its connection, its units
# are 0, 1 and 2, its epoch is EPOCH, the reader is number READER.
BARE, GREETED, OPENED, DEFINED, READY, LEFT, READING = range(7)
JOB, EPOCH, UNITS, ELEMENTS, BUFFERS, READER = 1, 1, 3, 1000, 2, 2

# act: bytes, which are sent; a request's field and body; or a function of the client, which looks at the outcome itself.
Case = namedtuple("Case", "name stage act outcome")

# The request is answered with this, and the connection goes on.
Answered = namedtuple("Answered", "code words", defaults=("",))
# This is the last answer, and tierd ends the connection.
Refused = namedtuple("Refused", "code words")
FINE = Answered("OK")
# The client goes; nothing is answered.
GONE = None


def one_of(*codes):
    """Both are right: which of them it is depends on what else goes on."""
    return Answered(codes)
