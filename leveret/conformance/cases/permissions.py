"""Permissions (section 2.2, behind the rows): which methods need which, and what is said."""

from collections.abc import Iterable

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.connection import MANAGED
from leveret.conformance.cases.refusals import judge_words, refused_for
from leveret.conformance.cases.steps import reply
from leveret.conformance.cases.tenants import enter, new_user, new_vhost, permit
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, Wire, publish
from leveret.conformance.rules import Level

chapter = Chapter("permissions")
Queue = commands.Queue
Exchange = commands.Exchange
Basic = commands.Basic
NOTHING = "^$"
DECLARE = Queue.Declare(queue="q", durable=True)
EXCHANGE = Exchange.Declare(exchange="e", exchange_type="direct", durable=True)


class Tenant:
    """A user with permissions in a vhost that has the queue `q`, and exchanges `e` and `t`."""

    def __init__(self, ground: Ground, configure: str, write: str, read: str) -> None:
        self._ground = ground
        self._vhost, self.user = new_vhost(ground), new_user(ground)
        permit(ground, self.user, self._vhost, configure, write, read)
        owner = enter(ground, self._vhost, None, 1)
        owner.call(1, DECLARE, Queue.DeclareOk)
        owner.call(1, EXCHANGE, Exchange.DeclareOk)
        topic = Exchange.Declare(exchange="t", exchange_type="topic", durable=True)
        owner.call(1, topic, Exchange.DeclareOk)

    def wire(self) -> Wire:
        """A connection of the user, with channel 1."""
        return enter(self._ground, self._vhost, self.user, 1)

    def refused(self, request: Method, permission: str, what: str) -> tuple[Refusal, Refusal]:
        """How *request* is refused, and how it should be for lack of *permission*."""
        observed = self.wire().refused(1, request)
        return observed, self.expected(observed, request, permission, what)

    def expected(self, observed: Refusal, request: Method, permission: str, what: str) -> Refusal:
        """How *request* should be refused; RabbitMQ before 3.11 does not name the permission."""
        text = f"access to {what} in vhost '{self._vhost}' refused for user '{self.user}'"
        older = refused_for(request, 403, text)
        return older if observed == older else refused_for(request, 403, f"{permission} {text}")

    def allow_topics(self, exchange: str, write: str, read: str) -> None:
        """Let the user only write and read these routing keys of a topic exchange."""
        body = {"exchange": exchange, "write": write, "read": read}
        self._ground.manage("PUT", "topic-permissions", self._vhost, self.user, body=body)

    def allow(self, configure: str, write: str, read: str) -> None:
        """Change the permissions."""
        permit(self._ground, self.user, self._vhost, configure, write, read)


def _allowed(wire: Wire, requests: Iterable[Method]) -> None:
    for request in requests:
        judge(reply(wire, request), spec=f"{request.name}Ok")


@chapter.case(
    "2.2-configure", rabbitmq="403 configure access to ... refused for user 'u'", needs=MANAGED
)
def configure(ground: Ground) -> Seen:
    """To declare and to delete needs configure, on the very name."""
    tenant = Tenant(ground, NOTHING, ".*", ".*")
    requests = {
        DECLARE: "queue 'q'",
        Queue.Delete(queue="q"): "queue 'q'",
        EXCHANGE: "exchange 'e'",
        Exchange.Delete(exchange="e"): "exchange 'e'",
    }
    return judge_words([tenant.refused(one, "configure", what) for one, what in requests.items()])


@chapter.case("2.2-write", rabbitmq="403 write access to ... refused", needs=MANAGED)
def write(ground: Ground) -> Seen:
    """To publish, to bind a queue and to bind to an exchange needs write."""
    tenant = Tenant(ground, ".*", NOTHING, ".*")
    requests = {
        Queue.Bind(queue="q", exchange="e", routing_key="k"): "queue 'q'",
        Queue.Unbind(queue="q", exchange="e", routing_key="k"): "queue 'q'",
        Exchange.Bind(source="t", destination="e", routing_key="k"): "exchange 'e'",
    }
    observed = [tenant.refused(one, "write", what) for one, what in requests.items()]
    for exchange, what in (("e", "exchange 'e'"), ("", "exchange 'amq.default'")):
        wire = tenant.wire()
        wire.send(publish(1, "q", b"x", exchange=exchange))
        refusal = wire.refusal()
        expected = tenant.expected(refusal, Basic.Publish(), "write", what)
        observed.append((refusal, expected))
    return judge_words(observed)


@chapter.case("2.2-read", rabbitmq="403 read access to ... refused", needs=MANAGED)
def read(ground: Ground) -> Seen:
    """To consume, get and purge, and to bind from an exchange, needs read."""
    tenant = Tenant(ground, ".*", ".*", NOTHING)
    requests = {
        Basic.Consume(queue="q"): "queue 'q'",
        Basic.Get(queue="q"): "queue 'q'",
        Queue.Purge(queue="q"): "queue 'q'",
        Queue.Bind(queue="q", exchange="e", routing_key="k"): "exchange 'e'",
        Exchange.Bind(source="t", destination="e", routing_key="k"): "exchange 't'",
    }
    return judge_words([tenant.refused(one, "read", what) for one, what in requests.items()])


@chapter.case("2.2-dead-letters", rabbitmq="403 for what dead letters need", needs=MANAGED)
def dead_letters(ground: Ground) -> Seen:
    """A queue with dead letters needs write on their exchange, and read on the queue."""
    tenant = Tenant(ground, ".*", "^other$", "^new$")
    arguments: FieldTable = {"x-dead-letter-exchange": "e"}
    declare = Queue.Declare(queue="new", durable=True, arguments=arguments)
    observed = [tenant.refused(declare, "write", "exchange 'e'")]
    tenant.allow(".*", ".*", NOTHING)
    observed.append(tenant.refused(declare, "read", "queue 'new'"))
    return judge_words(observed)


@chapter.case("2.2-alternate-exchange", rabbitmq="403 for what the alternate needs", needs=MANAGED)
def alternate_exchange(ground: Ground) -> Seen:
    """An exchange with an alternate needs write on that one, and read on the exchange."""
    tenant = Tenant(ground, ".*", NOTHING, ".*")
    arguments: FieldTable = {"alternate-exchange": "e"}
    declare = Exchange.Declare(exchange="new", arguments=arguments)
    observed = [tenant.refused(declare, "write", "exchange 'e'")]
    tenant.allow(".*", ".*", NOTHING)
    observed.append(tenant.refused(declare, "read", "exchange 'new'"))
    return judge_words(observed)


@chapter.case(
    "2.2-topic",
    level=Level.SHOULD,
    rabbitmq="403 write access to topic 'k' ... refused",
    needs=MANAGED,
)
def topic_permissions(ground: Ground) -> Seen:
    """On a topic exchange the routing key can need a permission of its own."""
    tenant = Tenant(ground, ".*", ".*", ".*")
    tenant.allow_topics("t", "^allowed", "^allowed")
    wire = tenant.wire()
    bind = Queue.Bind(queue="q", exchange="t", routing_key="allowed.k")
    wire.call(1, bind, Queue.BindOk)
    wire.send(publish(1, "allowed.k", b"x", exchange="t"))
    wire.call(1, Basic.Get(queue="q", no_ack=True), Basic.GetOk)
    wire.expect_body()
    wire.send(publish(1, "other", b"x", exchange="t"))
    what = "topic 'other' in exchange 't'"
    refusal = wire.refusal()
    observed = [(refusal, tenant.expected(refusal, Basic.Publish(), "write", what))]
    bind = Queue.Bind(queue="q", exchange="t", routing_key="other")
    observed.append(tenant.refused(bind, "read", what))
    return judge_words(observed)


@chapter.case("2.2-patterns", rabbitmq="found anywhere in the name", needs=MANAGED)
def patterns(ground: Ground) -> None:
    """The pattern of a permission may be found anywhere in a name."""
    tenant = Tenant(ground, "ine", "^mine$|^e$", "q|e$")
    wire = tenant.wire()
    _allowed(
        wire,
        [
            Queue.Declare(queue="mine", durable=True),
            Queue.Bind(queue="mine", exchange="e", routing_key="k"),
            Queue.Purge(queue="q"),
            Queue.Delete(queue="mine"),
        ],
    )
