"""Errors of exchanges (rows 40 to 53 of the catalogue)."""

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.cases.refusals import (
    judge_versions,
    judge_words,
    refused_for,
    refused_requests,
)
from leveret.conformance.cases.steps import bind_exchange, reply, the_exchange
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, connection_closed, publish
from leveret.conformance.rules import Level

chapter = Chapter("errors-exchanges")
Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete
Bind = commands.Exchange.Bind
Unbind = commands.Exchange.Unbind
MISSING = "conformance-missing"
TRUE = "'true' but current is 'false'"
X_MATCH = "expected all, any, all-with-x, or any-with-x"


def _refused(ground: Ground, code: int, text: str, *requests: Method) -> Seen:
    return judge_words(refused_requests(ground, code, text, requests))


def _missing(ground: Ground) -> str:
    return f"no {the_exchange(ground, MISSING)}"


@chapter.case("error-40", spec="403 access-refused", rabbitmq="403 operation not permitted on ...")
def default_exchange(ground: Ground) -> Seen:
    """The default exchange cannot be declared, deleted, bound or unbound."""
    wire = ground.wire(1)
    plain = ground.exchange(wire, "direct")
    queue = ground.queue(wire, durable=True)
    requests = (
        Declare(exchange=""),
        Declare(exchange="", passive=True),
        Delete(exchange=""),
        Bind(source="", destination=plain),
        Bind(source=plain, destination=""),
        Unbind(source="", destination=plain),
        Unbind(source=plain, destination=""),
        commands.Queue.Bind(queue=queue, exchange="", routing_key="k"),
        commands.Queue.Unbind(queue=queue, exchange="", routing_key="k"),
    )
    return _refused(ground, 403, "operation not permitted on the default exchange", *requests)


@chapter.case("error-41", spec="403 access-refused", rabbitmq="403 ... contains reserved prefix")
def reserved_name(ground: Ground) -> Seen:
    """A new exchange may not have a name that begins with amq."""
    text = "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    return _refused(ground, 403, text, Declare(exchange="amq.mine"))


@chapter.case("error-41", spec="declare-ok")
def reserved_name_that_exists(ground: Ground) -> None:
    """An exchange of the broker's own may be declared as it is."""
    declare = Declare(exchange="amq.fanout", exchange_type="fanout", durable=True)
    ground.wire(1).call(1, declare, commands.Exchange.DeclareOk)


@chapter.case("error-42", rabbitmq="403 deletion of system exchange ... not allowed")
def delete_of_a_system_exchange(ground: Ground) -> Seen:
    """The exchanges of the broker's own cannot be deleted."""
    text = f"deletion of system {the_exchange(ground, 'amq.direct')} not allowed"
    return _refused(ground, 403, text, Delete(exchange="amq.direct"))


@chapter.case(
    "error-43", spec="503 command-invalid", rabbitmq="406 unknown exchange type; 503 up to 3.12"
)
def unknown_type(ground: Ground) -> Seen:
    """An exchange has one of the types that the broker has."""
    declare = Declare(exchange=ground.exchange_name(), exchange_type="odd")
    text = "unknown exchange type 'odd'"
    observed = ground.wire(1).refused(1, declare)
    versions = refused_for(declare, 406, text), refused_for(declare, 503, text)
    expected = next((one for one in versions if observed.fits(one)), versions[0])
    return judge(observed, spec=connection_closed(503), rabbitmq=expected)


@chapter.case("error-44", spec="404 not-found", rabbitmq="404 no exchange 'e' in vhost '/'")
def passive_declare_of_a_missing_one(ground: Ground) -> Seen:
    """A passive declare needs the exchange to be there."""
    return _refused(ground, 404, _missing(ground), Declare(exchange=MISSING, passive=True))


@chapter.case("error-45", spec="406 precondition-failed", rabbitmq="406 inequivalent arg ...")
def declare_that_differs(ground: Ground) -> Seen:
    """An exchange cannot be declared with other properties than it has."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    differing: dict[str, tuple[Method, str]] = {
        "type": (Declare(0, name, "fanout"), "'fanout' but current is 'direct'"),
        "durable": (Declare(0, name, "direct", durable=True), TRUE),
        "auto_delete": (Declare(0, name, "direct", auto_delete=True), TRUE),
        "internal": (Declare(0, name, "direct", internal=True), TRUE),
        "alternate-exchange": (
            Declare(0, name, "direct", arguments={"alternate-exchange": "other"}),
            "the value 'other' of type 'longstr' but current is none",
        ),
    }
    place = the_exchange(ground, name)
    observed: list[tuple[Refusal, Refusal]] = []
    for argument, (request, values) in differing.items():
        text = f"inequivalent arg '{argument}' for {place}: received {values}"
        observed += refused_requests(ground, 406, text, [request])
    return judge_words(observed)


@chapter.case("error-45", spec="declare-ok")
def declare_that_is_the_same(ground: Ground) -> None:
    """An exchange can be declared again as it is; what else it is passively."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    for request in (
        Declare(exchange=name, exchange_type="direct"),
        Declare(exchange=name, exchange_type="fanout", durable=True, passive=True),
        Declare(exchange=name, exchange_type="direct", arguments={"x-anything": 5}),
    ):
        wire.call(1, request, commands.Exchange.DeclareOk)


@chapter.case("error-46", rabbitmq="406 invalid type 'signedint' for arg 'alternate-exchange' ...")
def alternate_exchange_that_is_no_name(ground: Ground) -> Seen:
    """The alternate exchange is named by a string."""
    name = ground.exchange_name()
    place = the_exchange(ground, name)
    text = f"invalid type 'signedint' for arg 'alternate-exchange' in {place}"
    declare = Declare(exchange=name, arguments={"alternate-exchange": 70_000})
    return _refused(ground, 406, text, declare)


@chapter.case("error-47", spec="406 precondition-failed", rabbitmq="406 exchange 'e' ... in use")
def delete_of_one_with_bindings(ground: Ground) -> Seen:
    """A delete with if-unused needs the exchange to have no bindings."""
    wire = ground.wire(1)
    source, destination = ground.exchange(wire, "direct"), ground.exchange(wire, "direct")
    bind_exchange(wire, destination, source)
    text = f"{the_exchange(ground, source)} in use"
    return _refused(ground, 406, text, Delete(exchange=source, if_unused=True))


@chapter.case("error-48", spec="404 not-found", rabbitmq="delete-ok")
def delete_of_a_missing_one(ground: Ground) -> Seen:
    """A delete of an exchange that does not exist succeeds."""
    wire = ground.wire(1)
    for is_unused in (False, True):
        delete = Delete(exchange=MISSING, if_unused=is_unused)
        seen = judge(
            reply(wire, delete),
            spec=refused_for(delete, 404, _missing(ground)),
            rabbitmq="Exchange.DeleteOk",
        )
    return seen


def _publish_refused(ground: Ground, exchange: str, expected: Refusal) -> Seen:
    observed = []
    for body in (b"", b"body", bytes(200_000)):
        wire = ground.wire(1)
        wire.send(publish(1, "k", body, exchange=exchange))
        observed.append((wire.refusal(), expected))
    return judge_words(observed)


@chapter.case("error-49", spec="404 not-found", rabbitmq="404 no exchange 'e' in vhost '/'")
def publish_to_a_missing_one(ground: Ground) -> Seen:
    """A publish needs the exchange to be there."""
    expected = refused_for(commands.Basic.Publish(), 404, _missing(ground))
    return _publish_refused(ground, MISSING, expected)


@chapter.case("error-50", spec="403 access-refused", rabbitmq="403 cannot publish to internal ...")
def publish_to_an_internal_one(ground: Ground) -> Seen:
    """Nobody may publish to an internal exchange."""
    name = ground.exchange(ground.wire(1), "fanout", internal=True)
    text = f"cannot publish to internal {the_exchange(ground, name)}"
    return _publish_refused(ground, name, refused_for(commands.Basic.Publish(), 403, text))


@chapter.case("error-51", rabbitmq="406 Invalid x-match field value ...; expected all, any, ...")
def x_match_that_does_not_exist(ground: Ground) -> Seen:
    """The x-match of a binding is one of those that are known."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    bind = Bind(source="amq.headers", destination=name, arguments={"x-match": "x"})
    known = (X_MATCH, "expected all or any")
    versions = (f'Invalid x-match field value <<"x">>; {text}' for text in known)
    refusals = (refused_for(bind, 406, text) for text in versions)
    return judge_versions(wire.refused(1, bind), *refusals)


@chapter.case("error-51", rabbitmq="406 Invalid x-match field type ...; expected longstr")
def x_match_of_another_type(ground: Ground) -> Seen:
    """The x-match of a binding is a string."""
    name = ground.exchange(ground.wire(1), "direct")
    observed: list[tuple[Refusal, Refusal]] = []
    for value, shown in ((True, "bool (value true)"), (70_000, "signedint (value 70000)")):
        bind = Bind(source="amq.headers", destination=name, arguments={"x-match": value})
        text = f"Invalid x-match field type {shown}; expected longstr"
        observed += refused_requests(ground, 406, text, [bind])
    return judge_words(observed)


@chapter.case("error-52", level=Level.SHOULD, rabbitmq="406 The binding key must be ...")
def weight_of_a_consistent_hash(ground: Ground) -> Seen:
    """The binding key of an exchange of type x-consistent-hash is a number above 0."""
    wire = ground.wire(1)
    target = ground.exchange(wire, "direct")
    declare = Declare(exchange=ground.exchange_name(), exchange_type="x-consistent-hash")
    answer = wire.answer(1, declare)
    if isinstance(answer, Refusal):
        raise Unmet(f"there is no such type of exchange: {answer}")
    keys = {
        "x": 'be an integer: <<"x">>',
        "": "be an integer: <<>>",
        "0": "be greater than 0",
        "-1": "be greater than 0",
    }
    observed: list[tuple[Refusal, Refusal]] = []
    for key, words in keys.items():
        bind = Bind(source=declare.exchange, destination=target, routing_key=key)
        observed += refused_requests(ground, 406, f"The binding key must {words}", [bind])
    return judge_words(observed)
