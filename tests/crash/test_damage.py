"""What recovery makes of damaged files: a log or a refusal, and never a message that was not."""

import os
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import CorruptRecord, StorageError
from leveret.storage.files import HEADER_SIZE
from leveret.storage.log import SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.state_log import State
from tests.crash.log_story import OPTIONS, flat
from tests.crash.mutations import flip, mutate_directory
from tests.storage.log_files import append, batch_at, mark, payload_at, sync

ROUNDS = int(os.environ.get("LEVERET_FUZZ_ROUNDS", "400"))
MESSAGES = 150
ACKED = ((0, 3), (10, 30), (60, 62), (110, 115))


@dataclass(frozen=True)
class Found:
    """What can be read of a recovered log: payloads by offset; and what cannot."""

    ready: dict[int, bytes]
    unreadable: set[int]
    report: list[str]


def write_log(directory: Path) -> None:
    """Messages with what became of some, over several segments, all of it durable."""
    log = SegmentLog(directory, OPTIONS, lambda: 0, space=DiskSpace())
    for size in (40, 76, 120, 76, 10):
        append(log, MESSAGES // 5, size=size)
        sync(log)
    mark(log, State.DELIVERED, (5, 20))
    mark(log, State.ACKED, *ACKED)
    sync(log)
    log.take_snapshot()
    mark(log, State.DELIVERED, (40, 45))
    sync(log)
    log.close()


def settled() -> set[int]:
    return set(flat(list(ACKED)))


def content(offset: int) -> bytes:
    return payload_at(offset, (40, 76, 120, 76, 10)[offset // (MESSAGES // 5)])


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("log") / "q"
    write_log(directory)
    return directory


def read_found(log: SegmentLog, found: Recovered) -> Found:
    """Read everything, over what is damaged."""
    payloads: dict[int, bytes] = {}
    unreadable: set[int] = set()
    for start, end in found.ready:
        assert end - start < 10_000
        while start < end:
            try:
                batches = log.read(start, 500)
            except CorruptRecord:
                unreadable.add(start)
                start += 1
                continue
            for batch in batches:
                numbered = enumerate(batch.payloads, batch.first_offset)
                payloads |= {o: payload for o, payload in numbered if o < end}
            start = batches[-1].next_offset
    return Found(payloads, unreadable, found.report)


def open_and_read(directory: Path) -> Found:
    log, found = recover(directory, OPTIONS, lambda: 0)
    try:
        read = read_found(log, found)
        # It goes on.
        log.append(batch_at(log.next_offset, 3))
        log.flush()
        sync(log)
        return read
    finally:
        log.close()


@contextmanager
def little_memory() -> Iterator[None]:
    """At most some hundred megabytes more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_recovery_of_damaged_files_ends_with_a_log_or_a_refusal(
    pristine: Path, tmp_path: Path
) -> None:
    """`make fuzz-storage` does it for hours."""
    seed = int(os.environ.get("LEVERET_FUZZ_SEED", "1"))
    with little_memory():
        for number in range(seed, seed + ROUNDS):
            choice = random.Random(number)
            copy = tmp_path / "copy"
            shutil.copytree(pristine, copy)
            done = [mutate_directory(copy, choice) for _ in range(choice.choice((1, 1, 2, 5)))]
            try:
                check_fuzzed(copy)
            except Exception as error:
                error.add_note(f"seed {number}: {', '.join(done)}")
                raise
            shutil.rmtree(copy)


def check_fuzzed(directory: Path) -> None:
    try:
        found = open_and_read(directory)
    except StorageError:
        return
    wrong = {o for o, payload in found.ready.items() if o < MESSAGES and payload != content(o)}
    assert not wrong, f"not what was written: {sorted(wrong)}"


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".state", "snapshot"])
def test_one_wrong_bit_costs_no_more_than_what_it_is_in(
    pristine: Path, tmp_path: Path, suffix: str
) -> None:
    """At most one message, which is named, and nothing comes to be that was not."""
    before = open_and_read(shutil.copytree(pristine, tmp_path / "sound"))
    assert before.ready.keys() == set(range(MESSAGES)) - settled()
    for path in sorted(pristine.glob(f"*{suffix}")):
        for number in range(15):
            choice = random.Random(f"{path.name}{number}")
            copy = shutil.copytree(pristine, tmp_path / "copy")
            data = bytearray(path.read_bytes())
            flip(data, choice)
            (copy / path.name).write_bytes(data)
            sound = path.read_bytes()
            at = next(at for at in range(len(data)) if data[at] != sound[at])
            try:
                check_flipped(copy, suffix, before, is_refused=suffix == ".log" or at < HEADER_SIZE)
            except Exception as error:
                error.add_note(f"{path.name}: byte {at} of {len(data)}")
                raise
            shutil.rmtree(copy)


def check_flipped(directory: Path, suffix: str, before: Found, *, is_refused: bool) -> None:
    try:
        found = open_and_read(directory)
    except StorageError:
        if is_refused:
            return
        raise
    wrong = {o for o, payload in found.ready.items() if o < MESSAGES and payload != content(o)}
    assert not wrong, f"not what was written: {sorted(wrong)}"
    missing = before.ready.keys() - found.ready.keys() - found.unreadable
    assert not missing or found.report, f"missing, and not named: {sorted(missing)}"
    if suffix in (".index", ".timeindex"):
        assert not missing | found.unreadable, "an index can be made anew"
        assert found.ready.keys() == before.ready.keys()
    elif suffix in (".state", "snapshot"):
        assert not missing | found.unreadable
