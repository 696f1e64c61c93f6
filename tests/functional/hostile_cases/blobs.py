"""Blobs: sizes, keys and pieces that cannot be, and uploads that never end."""
from hostile_cases.case import DEFINED, EPOCH, FINE, GREETED, JOB, LEFT, OPENED, READY, Answered, Case
from messages import BLOBS, BLOB_READ, BLOB_WRITE, OPEN, READY as READY_FIELD, data, define, number

MIB = 1 << 20
PIECE = 256 << 10
ROOM = 161  # blob_bytes of JobOpen


def write(key="key", size=0, offset=0, count=0, shared=0, deletion=0, epoch=EPOCH, job=JOB):
    numbers = (number(4, shared), number(5, size), number(6, offset), number(7, count), number(8, deletion))
    return number(1, job) + number(2, epoch) + data(3, key) + b"".join(numbers)


def read(key="key", offset=0, count=0):
    return number(1, JOB) + data(2, key) + number(4, offset) + number(5, count)


def with_room(play, room=MIB):
    """In a job that has it, which is ready."""

    def act(client):
        status, text, _ = client.call(OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(ROOM, room))
        assert status == 0, text
        status, text, _ = define(client, JOB, "unit0", 1000)
        assert status == 0, text
        status, text, _ = client.call(READY_FIELD, number(1, JOB) + number(2, 20000))
        assert status == 0, text
        play(client)

    return act


def ask(client, body, words=None, field=BLOB_WRITE):
    status, text, _ = client.call(field, body)
    assert (words in text) if words else status == 0, (status, text)


def never_ends(client):
    ask(client, write(size=60 * MIB, count=PIECE))


def begins_again_and_again(client):
    for turn in range(100):
        ask(client, write(key=f"key{turn}", size=60 * MIB, count=PIECE))
    ask(client, write(size=60 * MIB, count=0, offset=PIECE), "pieces come in order")


def goes_on_elsewhere(client):
    for body in (
        write(size=2 * PIECE, count=PIECE, offset=PIECE + 1),
        write(size=2 * PIECE, count=PIECE, offset=(1 << 64) - PIECE),
        write(size=3 * PIECE, count=PIECE, offset=PIECE),
        write(size=2 * PIECE, count=0, offset=PIECE),
    ):
        ask(client, write(size=2 * PIECE, count=PIECE))
        ask(client, body, "pieces come in order")
        ask(client, write(size=2 * PIECE, count=PIECE, offset=PIECE), "pieces come in order")
    ask(client, write(size=PIECE - 1, count=PIECE), "pieces come in order")


def sets_more_than_there_is_room_for(client):
    ask(client, write(size=MIB + 1, count=PIECE), "do not fit")
    for key in "abc":
        ask(client, write(key=key, size=PIECE, count=PIECE))
    ask(client, write(key="d", size=PIECE + 1, count=PIECE), "do not fit")
    ask(client, write(key="d", size=PIECE, count=PIECE))
    ask(client, write(key="e", size=1, count=1), "do not fit")
    ask(client, write(key="a", size=PIECE, count=PIECE))
    ask(client, write(key="e", deletion=1))


def sets_more_keys_than_it_may(client):
    for key in range(16):
        ask(client, write(key=f"key{key}"))
        ask(client, write(key=f"key{key}", shared=1))
    ask(client, write(key="key16"), "16 keys")
    ask(client, write(key="key16", shared=1), "16 keys")


def reads_beyond(client):
    ask(client, read(), "has no blob", BLOB_READ)
    ask(client, write(size=5, count=5))
    ask(client, read(), "has no blob", BLOB_READ)


NOT_READY = Answered("EINVAL", "this rank has not called tierd_job_ready")
CASES = [
    Case("a blob of a job without room", READY, (BLOB_WRITE, write(size=1, count=1)), Answered("ENOSPC", "open it with blob_bytes")),
    Case("a blob of nothing of a job without room", READY, (BLOB_WRITE, write()), Answered("ENOSPC", "open it with blob_bytes")),
    Case("a blob before the job is ready", DEFINED, (BLOB_WRITE, write()), NOT_READY),
    Case("a blob before units are defined", OPENED, (BLOB_WRITE, write()), NOT_READY),
    Case("a blob of another epoch", READY, (BLOB_WRITE, write(epoch=7)), Answered("ESTALE", "call tierd_job_ready")),
    Case("a blob of a job that was left", LEFT, (BLOB_WRITE, write()), Answered("EINVAL", "no open job")),
    Case("a blob of 2^64-1 bytes", READY, (BLOB_WRITE, write(size=-1, count=1)), Answered("EINVAL", "67108864 at most")),
    Case("a piece of a blob of 2^32-1 bytes", READY, (BLOB_WRITE, write(size=-1, count=0xFFFFFFFF)), Answered("E2BIG", "262144 bytes at most")),
    Case("a piece of a blob that has not begun", READY, (BLOB_WRITE, write(size=9, offset=1, count=1)), Answered("EINVAL", "pieces come in order")),
    Case("a blob without a key", READY, (BLOB_WRITE, write(key="")), Answered("EINVAL", "1 to 64 printable")),
    Case("a blob with a key of 65 bytes", READY, (BLOB_WRITE, write(key="k" * 65)), Answered("EINVAL", "1 to 64 printable")),
    Case("a blob with a newline in its key", READY, (BLOB_WRITE, write(key="a\nb")), Answered("EINVAL", "1 to 64 printable")),
    Case("a deletion with bytes", READY, (BLOB_WRITE, write(size=1, count=1, deletion=1)), Answered("EINVAL", "has no bytes")),
    Case("a blob to read that is not there", READY, (BLOB_READ, read()), Answered("ENOENT", "has no blob")),
    Case("a blob to read before units are defined", OPENED, (BLOB_READ, read(count=PIECE)), Answered("ENOENT", "has no blob")),
    Case("a piece to read of 2^32-1 bytes", READY, (BLOB_READ, read(count=0xFFFFFFFF)), Answered("E2BIG", "262144 bytes at most")),
    Case("a question for the blobs of no job", GREETED, (BLOBS, b""), Answered("ENOENT", "there is no job")),
    Case("a question for blobs from 2^32-1 on", READY, (BLOBS, data(1, "hostile") + number(2, 0xFFFFFFFF)), FINE),
    Case("a blob that never ends", GREETED, with_room(never_ends, 64 * MIB), None),
    Case("blobs that begin again and again", GREETED, with_room(begins_again_and_again, 64 * MIB), None),
    Case("a blob that goes on elsewhere", GREETED, with_room(goes_on_elsewhere), None),
    Case("more blobs than there is room for", GREETED, with_room(sets_more_than_there_is_room_for), None),
    Case("more keys than a rank may have", GREETED, with_room(sets_more_keys_than_it_may), None),
    Case("a blob to read before its step", GREETED, with_room(reads_beyond), None),
    Case("more room for blobs than there can be", GREETED,
         (OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(ROOM, -1)), Answered("EINVAL", "blob_bytes is 18446744073709551615")),
]
