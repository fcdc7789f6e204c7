"""HANDLERS: which function answers which method on a channel."""

from collections.abc import Callable, Mapping
from typing import Any

from pamqp.base import Frame as Method

from leveret.broker import handlers_basic, handlers_channel, handlers_exchange, handlers_queue
from leveret.broker.channel_session import ChannelSession

Handler = Callable[[ChannelSession, Any], None]

HANDLERS: Mapping[type[Method], Handler] = {
    **handlers_channel.HANDLERS,
    **handlers_exchange.HANDLERS,
    **handlers_queue.HANDLERS,
    **handlers_basic.HANDLERS,
}
