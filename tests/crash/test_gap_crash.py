"""A power cut while recovery puts a gap over damaged records."""

import shutil
from pathlib import Path

from leveret.storage.recovery import recover
from leveret.storage.state_log import State
from tests.crash.log_story import OPTIONS, Facts
from tests.crash.power_cut import images
from tests.crash.recording import recording
from tests.storage.log_files import append, crash, mark, new_log, payload_at, read_all, sync

BAD = (3, 9, 10, 22)
ACKED = (5, 6)


def test_what_was_not_damaged_stays_whenever_the_power_fails(tmp_path: Path) -> None:
    log = new_log(tmp_path / "first", OPTIONS)
    append(log, 30)
    mark(log, State.ACKED, ACKED)
    sync(log)
    log.take_snapshot()
    root = tmp_path / "root"
    directory = crash(log.directory, root / "log")
    log.close()
    path = directory / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    for offset in BAD:
        data[8 + 100 * offset + 50] ^= 1
    path.write_bytes(data)

    with recording(root) as record:
        record.note(Facts())
        recover(directory, OPTIONS, lambda: 0)[0].close()
    good = [offset for offset in range(30) if offset not in (*BAD, ACKED[0])]
    count = 0
    for image in images(record, 1):
        count += 1
        copy = image.restore(tmp_path / "image")
        log, found = recover(copy / "log", OPTIONS, lambda: 0)
        ready = [offset for start, end in found.ready for offset in range(start, end)]
        assert ready == good, image.name
        assert read_all(log, found.ready) == [payload_at(offset) for offset in good]
        log.close()
        shutil.rmtree(copy)
    assert count > 10
