"""Delayed messages: by exchanges of the type and by the header alone, in order, over restarts."""

from typing import Any

import pytest
from pamqp import commands

from leveret.broker.commands import run_command
from leveret.broker.errors import RequestError
from tests.broker.peer import Outgoing, Peer
from tests.broker.test_duplicates import count, declare, open_channel
from tests.broker.world import World


def declare_delayed(peer: Peer, name: str = "e") -> None:
    peer.call(
        1,
        commands.Exchange.Declare(
            exchange=name,
            exchange_type="x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "direct"},
        ),
        commands.Exchange.DeclareOk,
    )


def bind(peer: Peer, exchange: str = "e", queue: str = "q") -> None:
    peer.call(
        1,
        commands.Queue.Bind(queue=queue, exchange=exchange, routing_key="q"),
        commands.Queue.BindOk,
    )


def bodies(peer: Peer) -> list[bytes]:
    """What is in the queue now."""
    taken: list[bytes] = []
    while True:
        peer.send(1, commands.Basic.Get(queue="q", no_ack=True))
        (got,) = peer.receive()
        if isinstance(got.method, commands.Basic.GetEmpty):
            return taken
        taken.append(got.body)


def delayed(peer: Peer, body: bytes, delay: Any, exchange: str = "e", **others: Any) -> None:
    peer.publish(1, "q", body, exchange=exchange, headers={"x-delay": delay}, **others)


@pytest.mark.parametrize("exchange", ["e", "", "amq.direct"])
def test_messages_go_on_when_their_time_has_come_and_in_that_order(
    world: World, exchange: str
) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    bind(peer, "amq.direct")
    for body, delay in ((b"300", 300), (b"100", 100), (b"now", 0), (b"200", 200), (b"past", -5)):
        delayed(peer, body, delay, exchange)
    assert bodies(peer) == [b"now", b"past"]
    world.wait(99)
    assert bodies(peer) == []
    world.wait(1)
    assert bodies(peer) == [b"100"]
    world.wait(1000)
    assert bodies(peer) == [b"200", b"300"]


def test_they_survive_a_restart_and_are_not_sent_twice(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    for number in range(20):
        delayed(peer, b"%d" % number, 100 * number + 1)
    world.wait(501)
    assert count(peer) == 6
    world.commit()
    world.restart()
    peer = open_channel(world)
    assert count(peer) == 6
    world.wait(10_000)
    assert bodies(peer) == [b"%d" % number for number in range(20)]
    world.commit()
    world.restart()
    peer = open_channel(world)
    world.wait(10_000)
    assert bodies(peer) == []


def test_a_delayed_message_is_confirmed_when_it_is_on_disk(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    delayed(peer, b"m", 100, persistent=False)
    (ack,) = peer.receive()
    assert isinstance(ack.method, commands.Basic.Ack)


def test_a_message_waits_once(world: World) -> None:
    peer = open_channel(world)
    declare(peer, "q", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=50)
    delayed(peer, b"m", 100, "")
    world.wait(100)
    peer.send(1, commands.Basic.Get(queue="q"))
    (got,) = peer.receive()
    assert isinstance(got.method, commands.Basic.GetOk)
    peer.send(1, commands.Basic.Reject(got.method.delivery_tag, requeue=False))
    assert count(peer) == 1, "its dead letter was not delayed again"


def test_what_no_queue_takes_is_returned_at_once_by_a_plain_exchange(world: World) -> None:
    peer = open_channel(world)
    delayed(peer, b"m", 100, "", mandatory=True)
    (returned,) = peer.receive()
    assert isinstance(returned.method, commands.Basic.Return)


def test_a_run_of_delayed_messages_waits_each_for_its_time(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    peer.publish_each(
        1,
        *(
            Outgoing("q", b"%d" % number, "e", headers={"x-delay": 100 * (10 - number)})
            for number in range(10)
        ),
    )
    acks = [received.method for received in peer.receive()]
    assert all(isinstance(ack, commands.Basic.Ack) for ack in acks)
    assert len(world.vhost.delays) == 10
    world.wait(550)
    assert bodies(peer) == [b"%d" % number for number in (9, 8, 7, 6, 5)]
    world.wait(500)
    assert bodies(peer) == [b"%d" % number for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize("exchange", ["e", ""])
def test_a_run_in_which_some_do_not_wait_keeps_its_order(world: World, exchange: str) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    delays = [5, 0, 5, -1, 7, 0]
    peer.publish_each(
        1,
        *(
            Outgoing("q", b"%d" % place, exchange, headers={"x-delay": delay})
            for place, delay in enumerate(delays)
        ),
    )
    assert bodies(peer) == [b"1", b"3", b"5"]
    world.wait(5)
    assert bodies(peer) == [b"0", b"2"]
    world.wait(2)
    assert bodies(peer) == [b"4"]


def test_a_run_to_several_keys_goes_where_each_leads(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    peer.publish_each(
        1,
        *(
            Outgoing(key, b"%d" % place, "e", headers={"x-delay": 5})
            for place, key in enumerate(["q", "q", "nowhere", "q", "nowhere"])
        ),
    )
    world.wait(5)
    assert bodies(peer) == [b"0", b"1", b"3"]
    world.commit()
    assert len(world.vhost.delays) == 0


def test_copies_wait_too(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    headers = {"x-delay": 5, "CC": ["q"]}
    peer.publish_each(1, *(Outgoing("other", body, "e", headers=headers) for body in (b"1", b"2")))
    assert bodies(peer) == []
    world.wait(5)
    assert bodies(peer) == [b"1", b"2"]


def test_a_transaction_delays_from_its_commit_on(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    peer.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    delayed(peer, b"m", 100)
    world.wait(90)
    peer.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    world.wait(50)
    assert count(peer) == 0
    world.wait(50)
    assert count(peer) == 1


@pytest.mark.parametrize("delay", [300, 2**40])
def test_the_header_is_negative_on_delivery(world: World, delay: int) -> None:
    peer = open_channel(world)
    declare(peer, "q")
    delayed(peer, b"m", delay, "")
    world.wait(delay)
    peer.send(1, commands.Basic.Get(queue="q", no_ack=True))
    (got,) = peer.receive()
    assert got.properties.headers == {"x-delay": -delay}


def command(world: World, name: str, **arguments: object) -> dict[str, Any]:
    world.turn.now_ms = world.now_ms  # as the control socket does
    answer = run_command(world.broker, name, arguments)
    assert isinstance(answer, dict)
    return answer


def test_waiting_messages_are_listed_as_they_are_due(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    delayed(peer, b"three", 300)
    delayed(peer, b"one", 100)
    delayed(peer, b"two", 200, exchange="")
    world.wait(40)
    answer = command(world, "list_delayed")
    assert answer["waiting"] == 3
    assert answer["messages"] == [
        {
            "id": offset,
            "due_ms": world.now_ms - 40 + delay,
            "remaining_ms": delay - 40,
            "size": size,
            "exchange": exchange,
            "routing_key": "q",
            "message_id": None,
        }
        for offset, delay, size, exchange in ((1, 100, 3, "e"), (2, 200, 3, ""), (0, 300, 5, "e"))
    ]


def test_a_list_goes_on_behind_the_page_before(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    for number in range(10):
        delayed(peer, b"%d" % number, 100 + number // 2)
    pages = []
    after = None
    while True:
        answer = command(world, "list_delayed", limit=3, after=after)
        after = answer["next"]
        if after is None:
            break
        pages.append([row["id"] for row in answer["messages"]])
    assert pages == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_a_page_of_one_exchange_may_be_empty_and_not_the_last(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare_delayed(peer, "f")
    for exchange in "eef":
        delayed(peer, b"m", 100, exchange)
    first = command(world, "list_delayed", exchange="f", limit=2)
    assert first["messages"] == []
    second = command(world, "list_delayed", exchange="f", limit=2, after=first["next"])
    assert [row["id"] for row in second["messages"]] == [2]


def test_a_cancelled_message_is_never_sent(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    for number in range(4):
        delayed(peer, b"%d" % number, 100)
    answer = command(world, "cancel_delayed", ids=[3, 1, 9])
    assert answer == {"cancelled": [3, 1], "unknown": [9]}
    assert command(world, "cancel_delayed", ids=[1])["unknown"] == [1]
    world.run()
    world.restart()
    peer = open_channel(world)
    world.wait(100)
    assert bodies(peer) == [b"0", b"2"]
    assert command(world, "cancel_delayed", ids=[0])["unknown"] == [0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"vhost": "x"}, "vhost 'x' does not exist"),
        ({"limit": 0}, "limit is at least 1"),
        ({"after": [5]}, "after is the due time and the id of a message"),
        ({"after": [5, -1]}, "after is the due time and the id of a message"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    world: World, arguments: dict[str, object], complaint: str
) -> None:
    with pytest.raises(RequestError, match=complaint):
        run_command(world.broker, "list_delayed", arguments)


def test_damage_found_by_a_command_ends_the_store_and_says_so(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    delayed(peer, b"m", 100)
    (log,) = world.directory.glob("vhosts/*/delayed/*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    for name, arguments in (("list_delayed", {}), ("cancel_delayed", {"ids": [0]})):
        with pytest.raises(RequestError, match="its storage failed"):
            run_command(world.broker, name, arguments)
    world.wait(100)


def test_with_the_exchange_gone_its_messages_go_nowhere(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    delayed(peer, b"m", 100)
    peer.call(1, commands.Exchange.Delete(exchange="e"), commands.Exchange.DeleteOk)
    world.wait(100)
    world.commit()
    assert len(world.vhost.delays) == 0


def test_a_full_queue_gets_a_delayed_message_when_it_has_room(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q", x_max_length=1, x_overflow="reject-publish")
    declare(peer, "p")
    bind(peer)
    bind(peer, queue="p")
    peer.publish(1, "q", b"first")
    delayed(peer, b"one", 100)
    delayed(peer, b"two", 200)
    world.wait(100)
    world.wait(100)
    assert (count(peer), count(peer, "p")) == (1, 2)
    world.commit()
    assert bodies(peer) == [b"first"]
    world.wait(1000)
    assert bodies(peer) == [b"one"]
    world.wait(1000)
    assert bodies(peer) == [b"two"]
    assert count(peer, "p") == 2, "it has got them once"
    world.commit()
    world.restart()
    peer = open_channel(world)
    world.wait(10_000)
    assert count(peer) == 0
