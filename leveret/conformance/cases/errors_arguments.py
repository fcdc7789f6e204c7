"""Errors of the arguments of queues (rows 61 to 64 of the catalogue)."""

from collections.abc import Sequence

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Seen
from leveret.conformance.cases.refusals import judge_versions, refused_for
from leveret.conformance.cases.steps import the_queue
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal

chapter = Chapter("errors-arguments")
Declare = commands.Queue.Declare
QUORUM: FieldTable = {"x-queue-type": "quorum"}
CLASSIC_TYPE = "rabbit_classic_queue"


def _declare(ground: Ground, arguments: FieldTable, **flags: bool) -> tuple[str, Refusal]:
    """Declare a queue, durable unless *flags* say otherwise: its name, and how it is refused."""
    name = ground.queue_name()
    declare = Declare(0, name, arguments=arguments, **({"durable": True} | flags))
    return name, ground.wire(1).refused(1, declare)


def _judge(observed: Refusal, *texts: str) -> Seen:
    return judge_versions(observed, *(refused_for(Declare(), 406, text) for text in texts))


def _values_refused(ground: Ground, asked: Sequence[tuple[FieldTable, str]]) -> Seen:
    """Declare a queue with each of the arguments, of which the first has a bad value."""
    for arguments, reason in asked:
        name, observed = _declare(ground, arguments)
        argument = next(iter(arguments))
        text = f"invalid arg '{argument}' for {the_queue(ground, name)}: {reason}"
        seen = _judge(observed, text)
    return seen


@chapter.case("error-61", rabbitmq="406 invalid arg ...: {value_negative,-1}")
def negative_numbers(ground: Ground) -> Seen:
    """Times and lengths are not negative."""
    names = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes")
    return _values_refused(ground, [({name: -1}, "{value_negative,-1}") for name in names])


@chapter.case("error-61", rabbitmq="406 invalid arg 'x-max-priority' ...: {max_value_exceeded,256}")
def priorities_out_of_range(ground: Ground) -> Seen:
    """A queue has 255 priorities at most."""
    return _values_refused(ground, [({"x-max-priority": 256}, "{max_value_exceeded,256}")])


@chapter.case("error-61", rabbitmq="406 invalid arg ...: {value_zero,0}, {value_too_large,N}")
def times_out_of_range(ground: Ground) -> Seen:
    """A queue lives for a while, and nothing for more than ten years."""
    above = 315_360_000_001
    return _values_refused(
        ground,
        [
            ({"x-expires": 0}, "{value_zero,0}"),
            ({"x-expires": above}, f"{{value_too_large,{above}}}"),
            ({"x-message-ttl": above}, f"{{value_too_large,{above}}}"),
        ],
    )


@chapter.case("error-61", rabbitmq='406 invalid arg ...: "expected integer, got longstr"')
def numbers_of_another_type(ground: Ground) -> Seen:
    """Where an integer belongs nothing else is taken."""
    return _values_refused(
        ground,
        [
            ({"x-message-ttl": "10"}, '"expected integer, got longstr"'),
            ({"x-max-length": True}, '"expected integer, got bool"'),
            ({"x-max-priority": "1"}, '"expected integer, got longstr"'),
        ],
    )


@chapter.case("error-61", rabbitmq="406 invalid arg 'x-overflow' ...: invalid_overflow")
def overflow_that_does_not_exist(ground: Ground) -> Seen:
    """What happens to a full queue is one of those that are known."""
    return _values_refused(
        ground,
        [
            ({"x-overflow": "drop-tail"}, "invalid_overflow"),
            ({"x-overflow": True}, "{unacceptable_type,bool}"),
        ],
    )


@chapter.case("error-61", rabbitmq="406 invalid arg ...: routing_key_but_no_dlx_defined")
def dead_letter_key_alone(ground: Ground) -> Seen:
    """A routing key for dead letters needs an exchange for them."""
    arguments: FieldTable = {"x-dead-letter-routing-key": "k"}
    return _values_refused(ground, [(arguments, "routing_key_but_no_dlx_defined")])


@chapter.case("error-61", rabbitmq="406 invalid arg ...: {unacceptable_type,longstr}")
def flag_of_another_type(ground: Ground) -> Seen:
    """Whether a queue has a single active consumer is true or false."""
    arguments: FieldTable = {"x-single-active-consumer": "true"}
    return _values_refused(ground, [(arguments, "{unacceptable_type,longstr}")])


@chapter.case("error-61", rabbitmq="406 invalid arg 'x-queue-type' ...: \"unsupported queue type")
def type_that_does_not_exist(ground: Ground) -> Seen:
    """A queue has one of the types that the broker has."""
    arguments: FieldTable = {"x-queue-type": "odd"}
    return _values_refused(ground, [(arguments, "\"unsupported queue type 'odd'\"")])


@chapter.case("error-62", rabbitmq="406 invalid arg ... of queue type rabbit_classic_queue")
def argument_of_another_type_of_queue(ground: Ground) -> Seen:
    """An argument that only means something to another type of queue is refused."""
    name, observed = _declare(ground, {"x-max-age": "1h"})
    text = f"invalid arg 'x-max-age' for {the_queue(ground, name)} of queue type {CLASSIC_TYPE}"
    return _judge(observed, text)


@chapter.case("error-63", rabbitmq="406 invalid property 'auto-delete', ...")
def quorum_queue_that_is_not_durable(ground: Ground) -> Seen:
    """A quorum queue is durable and for all."""
    flags = {
        "auto-delete": {"auto_delete": True},
        "exclusive-owner": {"exclusive": True},
        "non-durable": {"durable": False},
    }
    for word, given in flags.items():
        name, observed = _declare(ground, QUORUM, **given)
        seen = _judge(observed, f"invalid property '{word}' for {the_queue(ground, name)}")
    return seen


@chapter.case("error-63", rabbitmq="406 Cannot declare a server-named queue for type ...")
def quorum_queue_without_a_name(ground: Ground) -> Seen:
    """A quorum queue has a name of its own."""
    declare = Declare(queue="", durable=True, arguments=QUORUM)
    text = "Cannot declare a server-named queue for type rabbit_quorum_queue"
    return _judge(ground.wire(1).refused(1, declare), text)


@chapter.case("error-64", rabbitmq="406 invalid type 'signedint' for arg 'x-dead-letter-exchange'")
def dead_letter_exchange_that_is_no_name(ground: Ground) -> Seen:
    """The exchange for dead letters is named by a string."""
    name, observed = _declare(ground, {"x-dead-letter-exchange": 70_000})
    text = "invalid type 'signedint' for arg 'x-dead-letter-exchange' in "
    return _judge(observed, text + the_queue(ground, name))
