"""VHost: how exchanges and queues come, go, and take others with them."""

from collections.abc import Callable

import pytest

from leveret.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from leveret.amqp.tables import Field, Table
from leveret.broker.vhost import VHost, generated_name
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import Consumer
from leveret.queues.declaration import QueueDeclaration
from tests.broker.world import World
from tests.fakes import FakeOutlet

ME, ANOTHER = object(), object()


def declare_queue(
    vhost: VHost,
    name: str,
    *,
    durable: bool = False,
    exclusive: bool = False,
    auto_delete: bool = False,
    owner: object = ME,
) -> ClassicQueue:
    declaration = QueueDeclaration(name, durable, exclusive, auto_delete, {})
    return vhost.declare_queue(declaration, owner)[0]


def declare_exchange(
    vhost: VHost,
    name: str,
    type_name: str = "fanout",
    *,
    durable: bool = False,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Table | None = None,
) -> bool:
    return vhost.declare_exchange(
        name,
        type_name,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments or {},
    )


def consume(queue: ClassicQueue) -> tuple[Consumer, FakeOutlet]:
    outlet = FakeOutlet()
    consumer = Consumer(outlet, "tag", no_ack=False, exclusive=False, prefetch=0)
    queue.consumers.add(consumer)
    return consumer, outlet


def publish(world: World, queue: ClassicQueue, count: int = 1) -> None:
    queue.publish([b"\0\0\0\xce" + b"body"] * count, 4, 8, 0)
    world.turn.touch(queue)
    world.run()


def delete(vhost: VHost, name: str, owner: object = ME) -> int:
    return vhost.delete_queue(name, owner, if_unused=False, if_empty=False)[0]


# ---- names


def test_a_generated_name_cannot_be_guessed() -> None:
    first, second = generated_name("amq.gen-"), generated_name("amq.gen-")
    assert len(first) == len("amq.gen-") + 22
    assert first != second


def test_a_queue_without_a_name_gets_one(vhost: VHost) -> None:
    queue = declare_queue(vhost, "")
    assert queue.name.startswith("amq.gen-")
    assert vhost.queue(queue.name, ME) is queue
    assert declare_queue(vhost, queue.name) is queue


def test_reserved_names_are_refused(vhost: VHost) -> None:
    with pytest.raises(AccessRefused, match=r"queue name 'amq.x' contains reserved prefix 'amq.*'"):
        declare_queue(vhost, "amq.x")
    with pytest.raises(
        AccessRefused, match=r"exchange name 'amq.x' contains reserved prefix 'amq.*'"
    ):
        declare_exchange(vhost, "amq.x")
    declare_exchange(vhost, "amq.fanout", durable=True)


def test_what_is_missing_is_named(vhost: VHost) -> None:
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        vhost.queue("q", ME)
    with pytest.raises(NotFound, match="no exchange 'e' in vhost '/'"):
        vhost.exchange("e")
    with pytest.raises(NotFound, match="no exchange 'e' in vhost '/'"):
        vhost.bind("e", declare_queue(vhost, "q"), "", {})


# ---- declared again


def test_the_same_queue_may_be_declared_again(vhost: VHost) -> None:
    assert declare_queue(vhost, "q", durable=True) is declare_queue(vhost, "q", durable=True)


def test_an_exclusive_queue_may_be_declared_again_as_durable(vhost: VHost) -> None:
    # It goes with its connection, so it is never durable.
    queue = declare_queue(vhost, "q", exclusive=True)
    assert declare_queue(vhost, "q", exclusive=True, durable=True) is queue


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
def test_another_queue_of_that_name_is_refused(vhost: VHost, flag: str) -> None:
    declare_queue(vhost, "q")
    with pytest.raises(
        PreconditionFailed,
        match=f"inequivalent arg '{flag}' for queue 'q' in vhost '/': "
        "received 'true' but current is 'false'",
    ):
        declare_queue(vhost, "q", **{flag: True})


def test_another_exchange_of_that_name_is_refused(vhost: VHost) -> None:
    declare_exchange(vhost, "e")
    declare_exchange(vhost, "e")
    for changed, text in (
        ({"type_name": "direct"}, "'type' .* received 'direct' but current is 'fanout'"),
        ({"durable": True}, "'durable' .* received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' .* received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' .* received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": Field("S", "a")}},
            "'alternate-exchange' .* received the value 'a' of type 'longstr' but current is none",
        ),
    ):
        with pytest.raises(PreconditionFailed, match=f"inequivalent arg {text}"):
            declare_exchange(vhost, "e", **changed)  # type: ignore[arg-type]


def test_an_exclusive_queue_is_locked_for_others(vhost: VHost) -> None:
    declare_queue(vhost, "q", exclusive=True)
    uses: list[Callable[[], object]] = [
        lambda: vhost.queue("q", ANOTHER),
        lambda: delete(vhost, "q", ANOTHER),
        lambda: declare_queue(vhost, "q", exclusive=True, owner=ANOTHER),
        lambda: declare_queue(vhost, "q", exclusive=False),
    ]
    for use in uses:
        with pytest.raises(ResourceLocked, match="cannot obtain exclusive access to locked queue"):
            use()
    assert declare_queue(vhost, "q", exclusive=True).owner is ME


# ---- queues go


def test_delete_tells_how_many_messages_were_ready(world: World, vhost: VHost) -> None:
    queue = declare_queue(vhost, "q", durable=True)
    publish(world, queue, 3)
    queue.get(no_ack=False)
    assert delete(vhost, "q") == 2
    assert delete(vhost, "q") == 0, "a missing queue is fine"


def test_delete_may_insist_on_an_empty_and_unused_queue(world: World, vhost: VHost) -> None:
    queue = declare_queue(vhost, "q")
    publish(world, queue)
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' not empty"):
        vhost.delete_queue("q", ME, if_unused=True, if_empty=True)
    queue.purge()
    consume(queue)
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' in use"):
        vhost.delete_queue("q", ME, if_unused=True, if_empty=True)
    assert vhost.delete_queue("q", ME, if_unused=False, if_empty=True) == (0, False)


def test_delete_counts_what_was_published_in_the_same_turn(vhost: VHost) -> None:
    queue = declare_queue(vhost, "q")
    queue.publish([b"\0\0\0\xce"], 4, 4, 0)
    with pytest.raises(PreconditionFailed, match="not empty"):
        vhost.delete_queue("q", ME, if_unused=False, if_empty=True)
    assert delete(vhost, "q") == 1


def test_consumers_of_a_deleted_queue_are_told(vhost: VHost) -> None:
    consumer, outlet = consume(declare_queue(vhost, "q"))
    delete(vhost, "q")
    assert outlet.cancellations == [consumer]


def test_an_auto_delete_queue_goes_with_its_last_consumer(world: World, vhost: VHost) -> None:
    queue = declare_queue(vhost, "q", auto_delete=True)
    publish(world, queue)
    first, _ = consume(queue)
    second, _ = consume(queue)
    vhost.cancel(queue, first)
    assert "q" in vhost.queues
    vhost.cancel(queue, second)
    assert "q" not in vhost.queues


def test_other_queues_stay_without_consumers(vhost: VHost) -> None:
    queue = declare_queue(vhost, "q")
    consumer, _ = consume(queue)
    vhost.cancel(queue, consumer)
    assert "q" in vhost.queues


def test_a_durable_queue_leaves_the_disk_after_its_definition(world: World, vhost: VHost) -> None:
    queue = declare_queue(vhost, "q", durable=True)
    publish(world, queue)
    directory = world.directory / "vhosts/1/queues" / str(queue.id)
    assert directory.exists()
    delete(vhost, "q")
    assert directory.exists()
    world.run()
    assert not directory.exists()


# ---- exchanges go


def test_a_missing_exchange_may_be_deleted(vhost: VHost) -> None:
    assert vhost.delete_exchange("e", if_unused=True) is False


def test_predeclared_exchanges_stay(vhost: VHost) -> None:
    with pytest.raises(AccessRefused, match=r"deletion of system exchange 'amq.direct' in vhost"):
        vhost.delete_exchange("amq.direct", if_unused=False)


def test_an_exchange_in_use_may_be_kept(vhost: VHost) -> None:
    declare_exchange(vhost, "e")
    vhost.bind("e", declare_queue(vhost, "q"), "", {})
    with pytest.raises(PreconditionFailed, match="exchange 'e' in vhost '/' in use"):
        vhost.delete_exchange("e", if_unused=True)
    vhost.delete_exchange("e", if_unused=False)
    assert "e" not in vhost.exchanges


def test_an_auto_delete_exchange_goes_with_its_last_binding(vhost: VHost) -> None:
    declare_exchange(vhost, "e", auto_delete=True)
    queue = declare_queue(vhost, "q")
    vhost.bind("e", queue, "a", {})
    vhost.bind("e", queue, "b", {})
    vhost.unbind("e", queue, "a", {})
    assert "e" in vhost.exchanges
    vhost.unbind("e", queue, "b", {})
    assert "e" not in vhost.exchanges


def test_auto_delete_exchanges_go_one_after_the_other(vhost: VHost) -> None:
    """A chain of them in front of a queue goes with the queue, from its end to its beginning."""
    names = ["first", "second", "third"]
    for name in names:
        declare_exchange(vhost, name, auto_delete=True)
    declare_exchange(vhost, "lasting")
    queue = declare_queue(vhost, "q")
    for source, destination in [("first", "second"), ("second", "third"), ("lasting", "third")]:
        vhost.bind(source, vhost.exchange(destination), "", {})
    vhost.bind("first", queue, "", {})
    vhost.bind("third", queue, "", {})
    delete(vhost, "q")
    assert not set(names) & set(vhost.exchanges)
    assert not vhost.exchange("lasting").has_bindings


def test_an_auto_delete_exchange_outlives_what_is_bound_elsewhere(vhost: VHost) -> None:
    declare_exchange(vhost, "e", auto_delete=True)
    vhost.bind("e", declare_queue(vhost, "bound"), "", {})
    vhost.bind("amq.fanout", declare_queue(vhost, "other"), "", {})
    delete(vhost, "other")
    assert "e" in vhost.exchanges


def test_deleting_an_exchange_unbinds_it_as_a_destination(vhost: VHost) -> None:
    declare_exchange(vhost, "source", auto_delete=True)
    declare_exchange(vhost, "destination")
    vhost.bind("source", vhost.exchange("destination"), "", {})
    vhost.delete_exchange("destination", if_unused=False)
    assert "source" not in vhost.exchanges


def test_unbinding_what_is_not_bound_is_fine(vhost: VHost) -> None:
    queue = declare_queue(vhost, "q")
    assert vhost.unbind("amq.direct", queue, "key", {}) is False
    assert vhost.unbind("missing", queue, "key", {}) is False


def test_what_another_has_just_made_is_waited_for_as_well(world: World) -> None:
    vhost = world.vhost
    same = QueueDeclaration("q", True, False, False, {})
    queue, _ = vhost.declare_queue(same, ME)
    vhost.bind("amq.direct", queue, "key", {})
    declare_exchange(vhost, "e", durable=True)
    assert vhost.declare_queue(same, ANOTHER) == (queue, True)
    assert vhost.bind("amq.direct", queue, "key", {}) is True
    assert declare_exchange(vhost, "e", durable=True) is True
    world.commit()
    assert vhost.declare_queue(same, ANOTHER) == (queue, False)
    assert vhost.bind("amq.direct", queue, "key", {}) is False
    assert declare_exchange(vhost, "e", durable=True) is False


def test_a_connection_that_goes_takes_its_exclusive_queues_along(vhost: VHost) -> None:
    declare_queue(vhost, "deleted", exclusive=True)
    delete(vhost, "deleted")
    declare_queue(vhost, "kept")
    declare_queue(vhost, "mine", exclusive=True)
    vhost.release(ME)
    assert list(vhost.queues) == ["kept"]
    vhost.release(ME)


def test_a_binding_made_twice_is_one(world: World) -> None:
    vhost = world.vhost
    queue = declare_queue(vhost, "q", durable=True)
    assert vhost.bind("amq.direct", queue, "key", {}) is True
    world.commit()
    assert vhost.bind("amq.direct", queue, "key", {}) is False
    assert len(list(vhost.exchange("amq.direct").bindings())) == 1
    assert vhost.unbind("amq.direct", queue, "key", {}) is True
    assert vhost.unbind("amq.direct", queue, "key", {}) is False


# ---- what lasts


def test_durable_definitions_outlive_a_restart(world: World) -> None:
    vhost = world.vhost
    declare_exchange(
        vhost, "durable", durable=True, arguments={"alternate-exchange": Field("S", "a")}
    )
    declare_exchange(vhost, "transient")
    declare_exchange(vhost, "deleted", durable=True)
    durable = declare_queue(vhost, "durable", durable=True)
    declare_queue(vhost, "transient")
    declare_queue(vhost, "exclusive", durable=True, exclusive=True)
    declare_queue(vhost, "deleted", durable=True)
    for source in ("durable", "transient", "deleted"):
        vhost.bind(source, durable, "key", {"x": Field("I", 1)})
    vhost.bind("durable", vhost.exchange("amq.topic"), "", {})
    vhost.delete_exchange("deleted", if_unused=False)
    delete(vhost, "deleted")
    publish(world, durable, 2)
    world.commit()
    world.restart()
    vhost = world.vhost
    assert list(vhost.queues) == ["durable"]
    assert vhost.queues["durable"].ready.count == 2
    assert {name for name in vhost.exchanges if not name.startswith("amq.")} == {"", "durable"}
    exchange = vhost.exchange("durable")
    assert exchange.alternate_exchange == "a"
    assert {(b.destination.name, b.routing_key) for b in exchange.bindings()} == {
        ("durable", "key"),
        ("amq.topic", ""),
    }


def test_the_directory_of_a_deleted_queue_is_never_used_again(world: World) -> None:
    queue = declare_queue(world.vhost, "q", durable=True)
    publish(world, queue)
    delete(world.vhost, "q")
    world.restart()
    anew = declare_queue(world.vhost, "q", durable=True)
    world.run()
    assert anew.id > queue.id
    assert anew.ready.count == 0
