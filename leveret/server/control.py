"""ControlSocket: takes the commands of operators at a UNIX socket in the data directory.

A request is a line of JSON, and so is its answer:

    {"command": "list_queues", "arguments": {"vhost": "/"}}
    {"result": [...]} or {"error": "vhost '/' does not exist"}

An answer comes once the changes are on the disk. Whoever can open the socket may do everything, so
only the user of the broker can.
"""

import contextlib
import json
import logging
import select
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from leveret.broker.broker import Broker
from leveret.broker.commands import run_command
from leveret.broker.commands_replay import AfterLogs
from leveret.broker.errors import InvalidRequest, RequestError
from leveret.broker.recovery import NotRecovered
from leveret.server.control_address import SOCKET_NAME, socket_address
from leveret.storage.committer import Waiter
from leveret.storage.data_directory import DataDirectoryError

logger = logging.getLogger(__name__)

REQUEST_MAX = 1024 * 1024


class ControlSocket:
    """The socket of one broker, in the running event loop."""

    def __init__(self, broker: Broker, data_dir: Path, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._data_dir = data_dir
        self._clock_ms = clock_ms

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Have the socket for as long as the context lasts, and answer at it.

        One that a killed broker left is replaced. Raises DataDirectoryError.
        """
        path = self._data_dir / SOCKET_NAME
        try:
            with socket_address(self._data_dir) as address:
                listener = await anyio.create_unix_listener(address, mode=0o600)
        except OSError as error:
            raise DataDirectoryError(f"cannot listen on {path}: {error.strerror}") from error
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._converse)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                tasks.cancel_scope.cancel()

    async def _converse(self, stream: SocketStream) -> None:
        requests = BufferedByteReceiveStream(stream)
        # The end of a conversation, in or between requests.
        ends = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)
        async with stream:
            with contextlib.suppress(*ends):
                try:
                    while True:
                        request = await requests.receive_until(b"\n", REQUEST_MAX)
                        await _send(stream, await self._answer(stream, request))
                except anyio.DelimiterNotFound:
                    await _send(stream, {"error": "the request is too long"})
                    await stream.send_eof()
                    # A client that is still sending would lose the answer with the connection.
                    async for _ in stream:
                        pass

    async def _answer(self, stream: SocketStream, request: bytes) -> dict[str, object]:
        try:
            name, arguments = _parse(request)
            result = await self._run(stream, name, arguments)
        except RequestError as error:
            return {"error": str(error)}
        except anyio.BrokenResourceError:
            raise
        except Exception:  # a fault of ours in one command; the broker goes on
            logger.exception("command failed")
            return {"error": "the broker failed to do this; its log says how"}
        waits: list[Callable[[Waiter], None]] = []
        if isinstance(result, AfterLogs):
            result = result.answer
            waits.append(self._broker.turn.wait_for_logs)
        if self._broker.has_changes:
            logger.info("command: %s", name)
            waits.append(self._broker.wait)
        for wait in waits:
            failure = await _outcome(wait)
            if failure is not None:
                logger.error("commit failed: command=%s: %s", name, failure)
                return {"error": "the storage of this broker failed"}
        return {"result": result}

    async def _run(self, stream: SocketStream, name: str, arguments: dict[str, object]) -> object:
        """Run a command, once the queues that it is about are there.

        Raises BrokenResourceError if nobody waits for it any more then.
        """
        while True:
            self._broker.turn.now_ms = self._clock_ms()
            try:
                return run_command(self._broker, name, arguments)
            except NotRecovered as error:
                is_there = anyio.Event()
                self._broker.recovery.want(error.queues, is_there.set)
                await is_there.wait()
                if _is_left(stream):
                    raise anyio.BrokenResourceError from None


async def _outcome(wait: Callable[[Waiter], None]) -> Exception | None:
    """Have *wait* tell when all is on disk; answers what prevents it."""
    done = anyio.Event()
    failure: Exception | None = None

    def committed(error: Exception | None) -> None:
        nonlocal failure
        failure = error
        done.set()

    wait(committed)
    await done.wait()
    return failure


def _is_left(stream: SocketStream) -> bool:
    """Has the other side closed the socket? One that has only said all it will is still there."""
    poll = select.poll()
    poll.register(stream.extra(SocketAttribute.raw_socket), 0)
    return bool(poll.poll(0))


def _parse(request: bytes) -> tuple[str, dict[str, object]]:
    try:
        parsed = json.loads(request)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        name, arguments = parsed.get("command"), parsed.get("arguments", {})
        if isinstance(name, str) and isinstance(arguments, dict):
            return name, arguments
    raise InvalidRequest('expected {"command": NAME, "arguments": {...}}')


async def _send(stream: SocketStream, answer: dict[str, object]) -> None:
    await stream.send(json.dumps(answer).encode() + b"\n")
