from leveret.queues.consumers import UNLIMITED, Consumer, ConsumerList
from tests.fakes import FakeOutlet


def consumer(tag: str, *, prefetch: int = 0, no_ack: bool = False) -> Consumer:
    return Consumer(FakeOutlet(), tag, no_ack=no_ack, exclusive=False, prefetch=prefetch)


def turns(consumers: ConsumerList) -> str:
    return "".join(consumer.tag for consumer, _ in consumers.in_turn())


def test_credit_is_what_the_prefetch_leaves() -> None:
    limited = consumer("a", prefetch=3)
    assert limited.credit() == 3
    limited.unacked = 3
    assert limited.credit() == 0
    assert consumer("b").credit() == UNLIMITED
    assert consumer("c", prefetch=3, no_ack=True).credit() == UNLIMITED


def test_credit_is_what_the_outlet_leaves() -> None:
    limited = consumer("a", prefetch=3)
    assert isinstance(limited.outlet, FakeOutlet)
    limited.outlet.shared_prefetch = 2
    assert limited.credit() == 2
    limited.outlet.is_blocked = True
    assert limited.credit() == 0


def test_a_new_consumer_comes_after_the_others() -> None:
    consumers = ConsumerList()
    first, second, third = map(consumer, "abc")
    consumers.add(first)
    consumers.add(second)
    assert turns(consumers) == "ab"
    consumers.served(first)
    consumers.add(third)
    assert turns(consumers) == "bac"


def test_turns_stay_when_another_consumer_goes() -> None:
    consumers = ConsumerList()
    members = [consumer(tag) for tag in "abcd"]
    for member in members:
        consumers.add(member)
    consumers.served(members[1])
    assert turns(consumers) == "cdab"
    consumers.remove(members[0])
    assert turns(consumers) == "cdb"
    consumers.remove(members[3])
    assert turns(consumers) == "cb"
    consumers.remove(members[2])
    assert turns(consumers) == "b"
    consumers.remove(members[1])
    assert turns(consumers) == ""


def test_only_those_with_credit_are_in_turn() -> None:
    consumers = ConsumerList()
    first, second = consumer("a", prefetch=1), consumer("b")
    consumers.add(first)
    consumers.add(second)
    first.unacked = 1
    assert turns(consumers) == "b"
