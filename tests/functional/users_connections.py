"""A user who takes all the connections that he may have takes none from others (see users.sh)."""
import os
import signal

import frames
from users import ADMINISTRATOR, ALICE, BOB, Rank, refused, tierctl
from waiting import wait_until

MAXIMUM, MAXIMUM_OF_ALL = 4, 16


def connect_as(uid, greets=True):
    os.seteuid(uid)
    try:
        return frames.greet() if greets else frames.connect()
    finally:
        os.seteuid(0)


def refusal(uid):
    connection = connect_as(uid, greets=False)
    frames.send(connection, frames.hello_of_trainer())
    kind, _, code, text = frames.receive(connection)
    assert kind == frames.HELLO_REPLY and frames.is_closed(connection)
    return code, text


def close_all(connections):
    for connection in connections:
        connection.close()
    connections.clear()


def is_full(uid):
    """Takes no place of its own where there is one."""
    connection = connect_as(uid, greets=False)
    frames.send(connection, frames.hello_of_trainer())
    code = frames.receive(connection)[2]
    connection.close()
    return code != 0


def the_limit_is_each_users_own():
    hers = [connect_as(ALICE) for _ in range(MAXIMUM)]
    for _ in range(50):
        code, text = refusal(ALICE)
        assert code == frames.EBUSY, code
        for part in (f"user {ALICE} has {MAXIMUM} connections, all that he may have", "connections_per_user", f"ask {ADMINISTRATOR} to raise"):
            assert part in text, text
    refused(ALICE, "EBUSY", "connections_per_user")
    his = [connect_as(BOB) for _ in range(MAXIMUM)]
    tierctl(ADMINISTRATOR, "jobs")
    tierctl(0, "jobs")
    for connection in hers + his:
        frames.ping(connection)
    # One that ends makes room for one.
    hers.pop().close()
    wait_until(lambda: not is_full(ALICE))
    close_all(hers + his)


def all_of_them_are_no_more_than_there_may_be():
    wait_until(lambda: not is_full(ALICE))
    theirs = [connect_as(ALICE + user) for user in range(MAXIMUM_OF_ALL // MAXIMUM) for _ in range(MAXIMUM)]
    code, text = refusal(ALICE + MAXIMUM_OF_ALL)
    assert code == frames.EBUSY and f"all connections ({MAXIMUM_OF_ALL}) are in use" in text, (code, text)
    for connection in theirs:
        frames.ping(connection)
    close_all(theirs)


def one_more_is_for_looking_and_ending():
    wait_until(lambda: not is_full(ALICE))
    ranks = [Rank(ALICE, job=f"full-{number}").ready() for number in range(MAXIMUM)]
    refused(ALICE, "EBUSY", "(tierctl goes on)")
    for verb in ["status"], ["jobs"], ["units", "full-0"], ["leases"], ["evict", "full-0"], ["top", "--once"], ["metrics"]:
        tierctl(ALICE, *verb)
    tierctl(ALICE, "release", "full-0", status=1, says=("in use by rank 0",))
    tierctl(ALICE, "watch", "--timeout", "1", status=1, says=(f"user {ALICE} has all his connections in use",))
    # One that hangs gives way to the next.
    older, newer = connect_as(ALICE), connect_as(ALICE)
    _, _, code, text = frames.receive(older)
    assert code == frames.EBUSY and "a newer one took the place" in text and frames.is_closed(older)
    frames.ping(newer)
    newer.close()
    tierctl(ALICE, "drop", "full-0", "--yes", "--force")
    ranks[0].kill()
    for rank in ranks[1:]:
        rank.leave()
    wait_until(lambda: not is_full(ALICE))


def those_that_gave_way_take_no_place_from_others():
    """Though they read nothing, and what they are told stays in the daemon: more than their sockets can hold."""
    hers = [connect_as(ALICE) for _ in range(MAXIMUM)]
    for _ in range(MAXIMUM_OF_ALL):
        hers.append(connect_as(ALICE))
        frames.send(hers[-1], 2500 * frames.frame(frames.REQUEST, frames.PING, request=5))
    his = [connect_as(BOB) for _ in range(MAXIMUM)]
    for connection in his:
        frames.ping(connection)
    tierctl(ALICE, "jobs")
    close_all(hers + his)


def the_silent_make_room_for_their_own_user_only():
    wait_until(lambda: not is_full(ALICE))
    his = connect_as(BOB, greets=False)
    hers = [connect_as(ALICE, greets=False) for _ in range(5 * MAXIMUM)]
    last = connect_as(ALICE)
    # The oldest were told, and his was not.
    _, _, code, text = frames.receive(hers[0])
    assert code == frames.EBUSY and f"user {ALICE} has {MAXIMUM} connections, all that he may have" in text and frames.is_closed(hers[0])
    frames.send(his, frames.hello())
    assert frames.receive(his)[2] == 0
    frames.ping(last)
    close_all(hers + [his, last])


def a_reload_raises_it_for_a_larger_job():
    with open(os.environ["CONF"], "w", encoding="utf-8") as configuration:
        configuration.write("[limits]\nconnections_per_user = 40\n")
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGHUP)
    wait_until(lambda: not is_full(ALICE))
    ranks = [Rank(ALICE, job="wide", rank=rank, world_size=10) for rank in range(10)]
    for rank in ranks:
        rank.ready()
    for rank in ranks:
        rank.leave()
    tierctl(ALICE, "drop", "wide", "--yes")
    log = open(os.environ["TIERD_LOG"], encoding="utf-8").read()
    assert "connections_per_user in [limits] is 40 from now on" in log


the_limit_is_each_users_own()
all_of_them_are_no_more_than_there_may_be()
one_more_is_for_looking_and_ending()
those_that_gave_way_take_no_place_from_others()
the_silent_make_room_for_their_own_user_only()
a_reload_raises_it_for_a_larger_job()
