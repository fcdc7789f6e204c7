"""SASL: what a client's response says under the mechanisms we speak (RFC 4616, RFC 4422)."""

from typing import NamedTuple

from leveret.amqp.tables import MalformedTable, read_entries


class MalformedResponse(ValueError):
    """A response that its mechanism does not allow; never quotes it, for it holds a secret."""


class Credentials(NamedTuple):
    """Name and password as the client gave them."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password=...)"


def parse_plain(response: bytes) -> Credentials:
    """Read `NUL username NUL password`; like RabbitMQ we refuse an authorization identity.

    Raises MalformedResponse.
    """
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise MalformedResponse("PLAIN response is not NUL, username, NUL, password")
    return Credentials(_text(parts[1]), _text(parts[2]))


def parse_amqplain(response: bytes) -> Credentials:
    """Read LOGIN and PASSWORD from the entries of a field table, sent without the table's size.

    Raises MalformedResponse.
    """
    try:
        entries = read_entries(response, 0, len(response))
        username, password = entries["LOGIN"].value, entries["PASSWORD"].value
    except (MalformedTable, KeyError):
        raise MalformedResponse("AMQPLAIN response is no table of LOGIN and PASSWORD") from None
    if not isinstance(username, str) or not isinstance(password, str):
        raise MalformedResponse("LOGIN and PASSWORD must be long strings of UTF-8")
    return Credentials(username, password)


def parse_external(response: bytes) -> str:
    """Return the identity the client asks for; empty means the one of its certificate.

    Raises MalformedResponse.
    """
    return _text(response)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # Not chained: the cause quotes the bytes.
        raise MalformedResponse("response is not UTF-8") from None
