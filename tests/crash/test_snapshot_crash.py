"""A snapshot that knows more than the files that a power cut left."""

import os
from pathlib import Path

from leveret.storage.state_log import State
from tests.crash.log_story import OPTIONS
from tests.storage.log_files import append, crash, mark, new_log, reopen, sync


def test_what_is_acked_behind_a_rewritten_state_log_stays_acked(tmp_path: Path) -> None:
    log = new_log(tmp_path / "first", OPTIONS)
    append(log, 30)
    for offset in range(0, 20, 2):
        mark(log, State.ACKED, (offset, offset + 1))
    sync(log)
    log.take_snapshot()
    copy = crash(log.directory, tmp_path / "copy")
    log.close()
    (states,) = copy.glob("*.state")
    os.truncate(states, 40)

    log, recovered = reopen(copy)
    assert recovered.ready[0] == (1, 2), "the snapshot tells of those that were acked"
    mark(log, State.ACKED, (21, 22), (23, 24))
    sync(log)
    left = crash(copy, tmp_path / "left")
    log.close()

    log, again = reopen(left)
    assert again.ready[-1] == (24, 30)
    assert (22, 23) in again.ready
    assert not again.report
    log.close()


def test_what_only_a_snapshot_tells_outlives_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "first", OPTIONS)
    append(log, 60)
    for offset in (0, 2, 4, 50, 52, 54):
        mark(log, State.ACKED, (offset, offset + 1))
    sync(log)
    log.take_snapshot()
    copy = crash(log.directory, tmp_path / "copy")
    log.close()
    first, second = sorted(copy.glob("*.state"))
    data = first.read_bytes()
    first.write_bytes(data[:24] + bytes(len(data) - 24))
    os.truncate(second, 24)

    log, recovered = reopen(copy)
    assert recovered.ready == [(o, o + 1) for o in (1, 3)] + [(5, 50), (51, 52), (53, 54), (55, 60)]
    log.close()
    log, again = reopen(copy)
    assert again.ready == recovered.ready
    log.close()
