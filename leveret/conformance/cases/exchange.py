"""Rules of the class exchange (28 to 57)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import channel_closed, connection_closed

chapter = Chapter("exchange")


@chapter.case(38, spec="503 command-invalid", rabbitmq="406; 503 up to 3.12")
def unknown_type(ground: Ground) -> Seen:
    """An exchange of a type that does not exist is refused."""
    declare = commands.Exchange.Declare(exchange=ground.exchange_name(), exchange_type="nope")
    return judge(
        ground.wire(1).refused(1, declare),
        spec=connection_closed(503),
        rabbitmq=channel_closed(406, "PRECONDITION_FAILED - unknown exchange type 'nope'"),
    )


@chapter.case(39)
def passive_declare_of_a_missing_exchange(ground: Ground) -> Seen:
    """A passive declare of an exchange that does not exist is refused."""
    name = ground.exchange_name()
    refusal = ground.wire(1).refused(1, commands.Exchange.Declare(exchange=name, passive=True))
    vhost = ground.facilities.address.vhost
    return judge(
        refusal, spec=channel_closed(404, f"NOT_FOUND - no exchange '{name}' in vhost '{vhost}'")
    )
