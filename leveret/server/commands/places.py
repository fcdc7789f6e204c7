"""Places in the history of a queue, as operators write them: an offset or a time.

    4711                        the message at this offset
    first                       the oldest that there is
    2026-11-21T09:30            a time by the clock of this machine, to the day or the millisecond
    2026-11-21T09:30:00+01:00   a time with its zone; Z is UTC
    10m ago, 2h ago, 3d ago     seconds, minutes, hours, days, weeks

A time stands for the first message that is not older.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from leveret.server.failure import Failure

_UNIT_MS: Mapping[str, int] = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_AGO = re.compile(rf"(\d+) *({'|'.join(_UNIT_MS)}) +ago", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


def parse_place(text: str, now_ms: int) -> dict[str, int]:
    """What the broker takes for a place: {"offset": ...} or {"time_ms": ...}. Raises Failure."""
    text = text.strip()
    if text == "first":
        return {"offset": 0}
    if _OFFSET.fullmatch(text):
        return {"offset": int(text)}
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return {"time_ms": max(now_ms - int(ago[1]) * _UNIT_MS[ago[2]], 0)}
    try:
        if not _DATE.match(text):
            raise ValueError
        # Without a zone it is that of this machine.
        moment = datetime.fromisoformat(text).astimezone()
        return {"time_ms": max(round(moment.timestamp() * 1000), 0)}
    except (ValueError, OverflowError):
        raise Failure(
            f"{text!r} is no place in a queue: expected an offset, 'first', a time like "
            "2026-11-21T09:30 or '10m ago'"
        ) from None


def readable_time(time_ms: int) -> str:
    """A time by the clock of this machine, to the millisecond; `parse_place` takes it."""
    moment = datetime.fromtimestamp(time_ms // 1000).replace(microsecond=time_ms % 1000 * 1000)
    return moment.isoformat(" ", "milliseconds")
