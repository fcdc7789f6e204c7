"""Refusals: how the cases of the catalogue of errors ask for one, and judge it."""

from collections.abc import Iterable

from pamqp.base import Frame as Method

from leveret.conformance.case import Met, Seen, judge
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, channel_closed, connection_closed, method

UNREACHABLE = {
    "error-5": "A client would have to come from another machine.",
    "error-13": "The limit is in the configuration of a broker, each has its own.",
    "error-14": "A vhost that is down cannot be had from outside.",
    "error-53": "The limit is in the configuration of a broker, each has its own.",
    "error-72": "No client can declare a queue that is protected.",
    "error-74": "The limit is in the configuration of a broker, each has its own.",
    "error-91": "It takes 30 minutes; how that is shortened differs from broker to broker.",
}
"""Rows of the catalogue of errors to which nothing leads that a client can do, and why."""

_NAMES = {
    320: "CONNECTION_FORCED",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
}
_SOFT = range(400, 500)


def refusal(code: int, text: str, ids: tuple[int, int] = (0, 0)) -> Refusal:
    """The refusal with *code*, which says what is closed, and *text* behind the code's name."""
    closed = channel_closed if code in _SOFT else connection_closed
    return closed(code, f"{_NAMES[code]} - {text}")._replace(ids=ids)


def refused_for(value: Method, code: int, text: str) -> Refusal:
    """The refusal of the method *value*, which it names."""
    return refusal(code, text, (value.index >> 16, value.frame_id))


def judge_words(observed: Iterable[tuple[Refusal, Refusal]]) -> Seen:
    """Judge each first refusal by the second, of which the specification gives only the code."""
    seen = [
        judge(one, spec=expected._replace(text="", ids=(0, 0)), rabbitmq=expected)
        for one, expected in observed
    ]
    return next((one for one in seen if one.met is not Met.BOTH), seen[0])


def judge_versions(observed: Refusal, *versions: Refusal) -> Seen:
    """Judge a refusal whose words are not the same in all *versions* of RabbitMQ."""
    fitting = (version for version in versions if observed.fits(version))
    return judge_words([(observed, next(fitting, versions[0]))])


def refused_requests(
    ground: Ground, code: int, text: str, requests: Iterable[Method]
) -> Iterable[tuple[Refusal, Refusal]]:
    """Send each method on a connection of its own: how it is refused, and how it should be."""
    for request in requests:
        yield ground.wire(1).refused(1, request), refused_for(request, code, text)


def refused_bytes(ground: Ground, *pieces: bytes) -> Refusal:
    """Send frames on a connection of their own with channel 1 open."""
    wire = ground.wire(1)
    wire.send(*pieces)
    return wire.refusal()


def refused_after(ground: Ground, request: Method, *before: Method) -> Refusal:
    """Send *before*, and *request*, on a connection of their own; nothing is answered to those."""
    return refused_bytes(ground, *(method(1, value) for value in (*before, request)))
