"""The two kinds of error of the specification, each subclass with its reply code.

A soft error closes one channel, a hard error the connection (§2.2.3, class `Constant`).
Domain code raises them with the explanation alone; the session adds the code's name in front and
the ids of the failing method, and is the only place that turns them into close frames.
"""

from typing import ClassVar

from leveret.amqp.constants import SHORT_STRING_MAX, ReplyCode


class AmqpError(Exception):
    """An error that the peer is told of by a close frame."""

    code: ClassVar[ReplyCode] = ReplyCode.INTERNAL_ERROR

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation)
        self.explanation = explanation

    @property
    def reply_text(self) -> str:
        """`NAME - explanation`, cut to 255 bytes of UTF-8 as RabbitMQ cuts it (252 and `...`)."""
        text = f"{self.code.name} - {self.explanation}"
        raw = text.encode("utf-8", "replace")
        if len(raw) <= SHORT_STRING_MAX:
            return text
        return raw[: SHORT_STRING_MAX - 3].decode("utf-8", "ignore") + "..."


class SoftError(AmqpError):
    """Closes the channel on which it happened."""


class HardError(AmqpError):
    """Closes the connection."""


class AccessRefused(SoftError):
    """403."""

    code = ReplyCode.ACCESS_REFUSED


class NotFound(SoftError):
    """404."""

    code = ReplyCode.NOT_FOUND


class ResourceLocked(SoftError):
    """405."""

    code = ReplyCode.RESOURCE_LOCKED


class PreconditionFailed(SoftError):
    """406."""

    code = ReplyCode.PRECONDITION_FAILED


class ConnectionForced(HardError):
    """320."""

    code = ReplyCode.CONNECTION_FORCED


class LoginRefused(HardError):
    """403 on channel 0: nothing but the connection is there to be closed."""

    code = ReplyCode.ACCESS_REFUSED


class FrameError(HardError):
    """501."""

    code = ReplyCode.FRAME_ERROR


class MalformedMethod(HardError):
    """502."""

    code = ReplyCode.SYNTAX_ERROR


class CommandInvalid(HardError):
    """503."""

    code = ReplyCode.COMMAND_INVALID


class ChannelError(HardError):
    """504."""

    code = ReplyCode.CHANNEL_ERROR


class UnexpectedFrame(HardError):
    """505."""

    code = ReplyCode.UNEXPECTED_FRAME


class ResourceError(HardError):
    """506."""

    code = ReplyCode.RESOURCE_ERROR


class NotAllowed(HardError):
    """530."""

    code = ReplyCode.NOT_ALLOWED


class NotImplementedByBroker(HardError):
    """540."""

    code = ReplyCode.NOT_IMPLEMENTED


class InternalError(HardError):
    """541."""

    code = ReplyCode.INTERNAL_ERROR
