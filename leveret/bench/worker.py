"""Worker: what the processes of a run say to each other."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from leveret.bench.errors import BenchError
from leveret.bench.histogram import Percentiles


class Counters(ctypes.Structure):
    """Memory that the processes of a run share. Each field has one writer."""

    _fields_ = (
        ("measuring", ctypes.c_uint64),
        ("published", ctypes.c_uint64),
        ("confirmed", ctypes.c_uint64),
        ("consumed", ctypes.c_uint64),
    )
    measuring: int
    published: int
    confirmed: int
    consumed: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected and waits for its start."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker had to give up."""

    text: str


@dataclass(frozen=True, slots=True)
class Published:
    """What the producers did: messages by stream, and the time from start to the last confirm."""

    by_stream: dict[int, int]
    seconds: float
    nacked: int
    confirm: Percentiles | None


@dataclass(frozen=True, slots=True)
class Consumed:
    """What the consumers saw, and the time from start to the last message."""

    seconds: float
    lost: int
    duplicated: int
    out_of_order: int
    redelivered: int
    early: int
    delivery: Percentiles | None


@dataclass(frozen=True, slots=True)
class Start:
    """The worker begins."""


@dataclass(frozen=True, slots=True)
class Stop:
    """No more is published. For the consumers: how much, by (queue, stream)."""

    published: dict[tuple[int, int], int]


Report = Ready | Failed | Published | Consumed
Order = Start | Stop


def report_failure(pipe: Pipe, work: Callable[[], None]) -> None:
    """Do *work*; tell the other end of *pipe* if the broker ends it."""
    try:
        work()
    except BenchError as error:
        pipe.send(Failed(str(error)))
    except OSError as error:
        pipe.send(Failed(f"the connection broke: {error.strerror or error}"))
    except EOFError:
        # The process that started us gave up and closed the pipe: there is nobody to tell.
        return
