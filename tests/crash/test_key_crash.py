"""A log whose key changes, after each power cut while it does."""

from dataclasses import replace
from pathlib import Path

import pytest

from leveret.storage.disk_space import DiskSpace
from leveret.storage.recovery import recover
from leveret.storage.state_log import State
from tests.crash.log_story import OPTIONS, Facts, LogStory, check_recovery, keys_of
from tests.crash.power_cut import Image
from tests.crash.recording import Recording, recording
from tests.crash.test_log_crash import each
from tests.storage.log_files import append, mark, payload_at, sync


def check_each(tmp_path: Path, record: Recording, seed: int) -> int:
    def check(root: Path, image: Image) -> None:
        if image.is_journaled:  # without, what an earlier life settled can come back
            check_recovery(root / "log", image.facts)

    return each(tmp_path, record, seed, check)


@pytest.mark.parametrize("seed", range(20, 23))
def test_a_second_life_with_another_key(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "first"
    root.mkdir()
    facts = None
    for life in range(3):
        with recording(root) as record:
            story = LogStory(root / "log", record, seed + life, facts)
            story.run(20)
            story.stop()
        facts = story.facts
    assert check_each(tmp_path, record, seed) > 10


def test_an_empty_segment_gets_a_new_key(tmp_path: Path) -> None:
    root = tmp_path / "first"
    log, _ = recover(
        root / "log", replace(OPTIONS, keys=keys_of(root / "log", 1)), lambda: 0, space=DiskSpace()
    )
    append(log, 20)
    sync(log)
    mark(log, State.ACKED, (0, 20))
    for _ in range(3):
        log.look_after(10**9)
    sync(log)
    log.close()
    assert [path.stat().st_size for path in (root / "log").glob("*.log")] == [8]

    with recording(root) as record:
        options = replace(OPTIONS, keys=keys_of(root / "log", 2))
        log, _ = recover(root / "log", options, lambda: 0, space=DiskSpace())
        written = {offset: payload_at(offset, 500) for offset in range(20, 23)}
        record.note(Facts(written=written))
        append(log, 3, size=500)
        sync(log)
        record.note(Facts(written=written, confirmed=frozenset(written)))
        log.close()
    assert check_each(tmp_path, record, 1) > 2
