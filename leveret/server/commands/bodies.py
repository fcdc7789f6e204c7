"""Bodies and values of messages as people read them."""

import base64
from datetime import datetime


def decode_body(encoded: object) -> bytes:
    """The bytes of a body that the broker answered in base64."""
    assert isinstance(encoded, str)
    return base64.b64decode(encoded)


def readable_body(body: bytes, *, is_cut: bool = False) -> str:
    """Text if it is all printable, hexadecimal digits in pairs if not.

    With *is_cut* its last character may be incomplete.
    """
    for end in range(len(body), max(len(body) - (4 if is_cut else 1), -1), -1):
        try:
            text = body[:end].decode()
        except UnicodeDecodeError:
            continue
        if all(character.isprintable() or character in "\t\r\n" for character in text):
            return text
        break
    return body.hex(" ")


def json_body(body: bytes) -> dict[str, str]:
    """A body as JSON: its text, or base64 if it is not UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def readable_timestamp(seconds: int) -> str:
    """The property timestamp by the clock of this machine."""
    try:
        return datetime.fromtimestamp(seconds).isoformat(" ")
    except (ValueError, OverflowError, OSError):  # what publishers put there
        return str(seconds)
