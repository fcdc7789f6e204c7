"""The doctor: what it says of sound and damaged data directories, and what a repair does."""

import json
import os
import random
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from leveret.storage.data_directory import DataDirectoryError, DirectoryLock
from leveret.storage.doctor import Diagnosis, diagnosis_json, examine
from leveret.storage.key_ring import open_key_ring
from leveret.storage.log_check import check_log
from leveret.storage.repairs import Finding
from leveret.storage.state_log import State
from tests.crash.mutations import flip, mutate_directory
from tests.storage.data_dirs import (
    ACKED,
    MESSAGES,
    content,
    delayed_dir,
    fingerprints,
    keys_path,
    make_data_dir,
    queue_dir,
    ready_messages,
)
from tests.storage.log_files import SMALL, append, mark, new_log, sync

FIXTURES = sorted((Path(__file__).parent / "formats").glob("*.tar.xz"))
ROUNDS = int(os.environ.get("LEVERET_FUZZ_ROUNDS", "20"))
SEED = int(os.environ.get("LEVERET_FUZZ_SEED", "1"))
READY = set(range(MESSAGES)) - ACKED
FIRST, SECOND, THIRD, LAST = (f"{base:020}" for base in (0, 51, 82, 119))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data_dir(tmp_path_factory.mktemp("doctor") / "data")


@pytest.fixture
def data_dir(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "data")


def look(data_dir: Path) -> Diagnosis:
    """Examine, and see that nothing was changed."""
    before = fingerprints(data_dir)
    found = examine(data_dir, lambda size: None)
    assert fingerprints(data_dir) == before
    assert json.dumps(diagnosis_json(found))
    return found


def repair(data_dir: Path) -> Diagnosis:
    """Repair, and see that nothing is left to be found."""
    found = examine(data_dir, lambda size: None, repair=True)
    again = look(data_dir)
    assert not list(again.findings)
    assert again.is_sound
    return found


def only(found: Diagnosis) -> Finding:
    (finding,) = found.findings
    return finding


def change(path: Path, position: int, *, bit: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


def check_ready(data_dir: Path, missing: set[int], *, back: set[int] | None = None) -> None:
    """The queue has what it had, but for what is *missing* or came *back*; the others have all."""
    found = ready_messages(queue_dir(data_dir))
    assert {o for o, payload in found.items() if payload != content(o)} == set()
    assert found.keys() == (READY - missing) | (back or set())
    assert list(found) == sorted(found)
    assert ready_messages(queue_dir(data_dir, 2)).keys() == READY
    assert ready_messages(delayed_dir(data_dir)).keys() == READY


# ---- sound


def test_a_stopped_directory_is_sound(data_dir: Path) -> None:
    found = look(data_dir)
    assert not list(found.findings)
    assert (found.is_sound, found.refusal) == (True, "")
    assert (found.queues, found.segments, found.good, found.bad) == (2, 12, 3 * MESSAGES, 0)
    assert found.size > sum(path.stat().st_size for path in data_dir.rglob("*.log"))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.split(".")[0])
def test_directories_of_each_format_are_sound(fixture: Path, tmp_path: Path) -> None:
    with tarfile.open(fixture) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    found = look(tmp_path / "data")
    assert found.is_sound
    assert not found.refusal
    assert found.good > 0


def test_a_torn_tail_is_harmless(data_dir: Path) -> None:
    with (queue_dir(data_dir) / f"{LAST}.log").open("ab") as file:
        file.write(b"\x00\x00\x00\x20torn")
    found = look(data_dir)
    assert found.is_sound
    assert "cut 8 bytes" in only(found).repair
    repair(data_dir)
    check_ready(data_dir, set())


def test_old_bytes_of_a_file_that_is_used_again_are_harmless(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{LAST}.log"
    log.write_bytes(log.read_bytes() + (queue_dir(data_dir) / f"{FIRST}.log").read_bytes()[500:])
    assert look(data_dir).is_sound
    repair(data_dir)
    check_ready(data_dir, set())


def test_what_a_killed_broker_leaves_is_harmless(data_dir: Path) -> None:
    queue = queue_dir(data_dir)
    (queue / f"{LAST}.index").unlink()
    (queue / f"{LAST}.timeindex").unlink()
    (queue / "snapshot.tmp").write_bytes(b"LVSN")
    (queue / "spare").write_bytes(bytes(100))
    (queue / f"{THIRD}.log.tmp").write_bytes(b"LVLG")
    (queue / f"{9:020}.state").write_bytes(b"")
    shutil.copytree(queue, queue_dir(data_dir, 77))
    shutil.copytree(data_dir / "vhosts" / "1", data_dir / "vhosts" / "9")
    found = look(data_dir)
    assert found.is_sound
    names = [finding.path.name for finding in found.findings]
    assert sorted(names) == sorted(
        [f"{9:020}.state", f"{THIRD}.log.tmp", "snapshot.tmp", "spare", "77", "9"]
    )
    kept = repair(data_dir).kept
    assert kept is not None
    assert (kept / "vhosts" / "9" / "queues").is_dir()
    check_ready(data_dir, set())


def test_foreign_files_are_named_and_set_aside(data_dir: Path) -> None:
    path = queue_dir(data_dir) / "notes.txt"
    path.write_text("mine")
    assert only(look(data_dir)).is_harmless
    kept = repair(data_dir).kept
    assert kept is not None
    assert (kept / path.relative_to(data_dir)).read_text() == "mine"


@pytest.mark.parametrize("name", ["message-ids", "offsets"])
def test_what_queues_keep_beside_their_logs_stays(data_dir: Path, name: str) -> None:
    path = queue_dir(data_dir) / name
    path.write_bytes(b"kept")
    assert not any(place.findings for place in look(data_dir).places)
    repair(data_dir)
    assert path.read_bytes() == b"kept"


# ---- damage


def test_a_damaged_message_is_named(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{SECOND}.log"
    position = log.read_bytes().index(b"70:xxx")
    change(log, position)
    found = look(data_dir)
    finding = only(found)
    assert (finding.path, finding.offset, finding.position) == (log, 70, position - 24)
    assert (finding.wrong, finding.is_harmless) == ("damaged: message 70", False)
    assert finding.repair == "the queue stops at message 70"
    (place,) = found.places
    assert (place.kind, place.vhost, place.name, found.bad) == ("queue", "/", "orders", 1)
    repair(data_dir)
    check_ready(data_dir, {70})


def test_a_damaged_message_that_was_settled_stops_nothing(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{FIRST}.log"
    change(log, log.read_bytes().index(b"12:xxx"))
    finding = only(look(data_dir))
    assert finding.repair == "nobody needs it: settled"
    assert not finding.is_harmless
    repair(data_dir)
    check_ready(data_dir, set())


def test_what_recovery_would_cut_though_good_messages_follow(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{LAST}.log"
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).unlink()
    change(log, log.read_bytes().index(b"122:") - 24)
    (finding,) = (finding for finding in look(data_dir).findings if finding.path == log)
    assert (finding.offset, finding.is_harmless) == (122, False)
    assert "27 good messages behind it" in finding.repair
    repair(data_dir)
    check_ready(data_dir, {122})


def test_what_recovery_would_put_a_gap_over(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{LAST}.log"
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).unlink()
    change(log, log.read_bytes().index(b"122:"))
    (finding,) = (finding for finding in look(data_dir).findings if finding.path == log)
    assert (finding.offset, finding.is_harmless) == (122, False)
    assert finding.repair == "recovery puts a gap there, and what follows stays"
    check_ready(data_dir, {122})


@pytest.mark.parametrize("byte", range(4, 24))
def test_any_byte_of_a_header_costs_one_message(data_dir: Path, byte: int) -> None:
    log = queue_dir(data_dir) / f"{SECOND}.log"
    change(log, log.read_bytes().index(b"70:xxx") - 24 + byte, bit=1)
    assert only(look(data_dir)).offset == 70
    repair(data_dir)
    check_ready(data_dir, {70})


def test_bytes_gone_from_the_middle_of_a_log(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{SECOND}.log"
    data = log.read_bytes()
    at = data.index(b"70:xxx")
    log.write_bytes(data[:at] + data[at + 200 :])
    found = look(data_dir)
    assert not found.is_sound
    repair(data_dir)
    check_ready(data_dir, {70, 71})


def test_a_closed_segment_that_is_truncated(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{THIRD}.log"
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b"116:") - 24])
    found = look(data_dir)
    assert not found.is_sound
    assert found.bad == 3
    assert any(
        finding.path == log and "messages 116 to 118" in finding.wrong for finding in found.findings
    )
    repair(data_dir)
    check_ready(data_dir, {116, 117, 118})


def test_a_closed_segment_that_has_lost_all_is_empty_from_then_on(data_dir: Path) -> None:
    queue = queue_dir(data_dir)
    (queue / "snapshot").unlink()
    (queue / f"{SECOND}.index").unlink()
    (queue / f"{SECOND}.timeindex").unlink()
    (queue / f"{SECOND}.log").write_bytes((queue / f"{SECOND}.log").read_bytes()[:8])
    look(data_dir)
    repair(data_dir)
    check_ready(data_dir, set(range(51, 82)))


def test_a_log_whose_header_is_damaged_is_read_all_the_same(data_dir: Path) -> None:
    for name, position in ((FIRST, 1), (SECOND, 5), (LAST, 7)):
        change(queue_dir(data_dir) / f"{name}.log", position, bit=64)
    found = look(data_dir)
    assert [finding.position for finding in found.findings] == [0, 0, 0]
    assert all(finding.repair == "the queue is stopped" for finding in found.findings)
    repair(data_dir)
    check_ready(data_dir, set())


def test_a_header_that_is_lost_does_not_cost_what_is_behind_it(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{LAST}.log"
    log.write_bytes(bytes(8) + log.read_bytes()[8:])
    found = look(data_dir)
    assert any("no header in front of 31 good messages" in f.wrong for f in found.findings)
    repair(data_dir)
    check_ready(data_dir, set())


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", [FIRST, LAST])
@pytest.mark.parametrize("position", [2, 15, 27])
def test_a_damaged_index_costs_nothing(
    data_dir: Path, segment: str, suffix: str, position: int
) -> None:
    path = queue_dir(data_dir) / f"{segment}{suffix}"
    change(path, position, bit=2)
    assert any(f.path == path and not f.is_harmless for f in look(data_dir).findings)
    repair(data_dir)
    check_ready(data_dir, set())


def test_an_index_with_holes_is_what_a_power_cut_leaves(data_dir: Path) -> None:
    path = queue_dir(data_dir) / f"{FIRST}.index"
    data = path.read_bytes()
    path.write_bytes(data[:24] + bytes(len(data) - 24))
    assert look(data_dir).is_sound
    repair(data_dir)
    check_ready(data_dir, set())


@pytest.mark.parametrize("position", [1, 12])
def test_damaged_states_are_made_again_from_the_snapshot(data_dir: Path, position: int) -> None:
    path = queue_dir(data_dir) / f"{FIRST}.state"
    change(path, position)
    finding = only(look(data_dir))
    assert finding.path == path
    assert not finding.is_harmless
    repair(data_dir)
    check_ready(data_dir, set())


def test_damaged_states_without_a_snapshot(data_dir: Path) -> None:
    (queue_dir(data_dir) / "snapshot").unlink()
    path = queue_dir(data_dir) / f"{FIRST}.state"
    change(path, 8 + 16)
    assert any(f.path == path and not f.is_harmless for f in look(data_dir).findings)
    repair(data_dir)
    back = set(ready_messages(queue_dir(data_dir))) & ACKED
    check_ready(data_dir, set(), back=back)
    assert back


def test_a_damaged_snapshot_is_not_needed(data_dir: Path) -> None:
    path = queue_dir(data_dir) / "snapshot"
    change(path, 40)
    finding = only(look(data_dir))
    assert (finding.path, finding.is_harmless) == (path, False)
    repair(data_dir)
    check_ready(data_dir, set())


def test_damaged_keys_are_cut(data_dir: Path) -> None:
    path = keys_path(data_dir)
    data = path.read_bytes()
    change(path, 24 + 128 + 20)
    finding = only(look(data_dir))
    assert (finding.path, finding.position, finding.is_harmless) == (path, 24 + 128, False)
    repair(data_dir)
    assert path.read_bytes() == data[: 24 + 128]


def test_torn_keys_are_harmless(data_dir: Path) -> None:
    path = keys_path(data_dir)
    path.write_bytes(path.read_bytes()[:-5])
    assert only(look(data_dir)).is_harmless
    repair(data_dir)


def test_a_damaged_index_of_due_times_is_dropped(data_dir: Path) -> None:
    path = delayed_dir(data_dir) / f"{0:020}.due"
    change(path, 300)
    assert not only(look(data_dir)).is_harmless
    repair(data_dir)
    assert not path.exists()
    check_ready(data_dir, set())


def test_a_segment_that_the_last_snapshot_knows_is_missing(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 40, 40, 40)
    mark(log, State.ACKED, (0, 5))
    sync(log)
    log.take_snapshot()
    log.close()
    for path in (tmp_path / "q").glob(f"{40:020}.*"):
        path.unlink()
    check = check_log(tmp_path / "q", SMALL, lambda size: None)
    (finding,) = check.findings
    assert (finding.offset, finding.is_harmless) == (40, False)
    assert finding.wrong == "missing: messages 40 to 79, 40 not settled"


def test_a_queue_without_a_directory_has_never_had_a_message(data_dir: Path) -> None:
    shutil.rmtree(queue_dir(data_dir, 2))
    found = look(data_dir)
    assert found.is_sound
    assert found.queues == 2


def test_a_segment_under_the_name_of_another(data_dir: Path) -> None:
    queue = queue_dir(data_dir)
    shutil.copy(queue / f"{FIRST}.log", queue / f"{60:020}.log")
    found = look(data_dir)
    assert not found.is_sound
    assert any("records of other offsets" in finding.wrong for finding in found.findings)
    repair(data_dir)
    check_ready(data_dir, set())


def test_a_file_that_cannot_be_read_is_named(data_dir: Path) -> None:
    path = queue_dir(data_dir) / f"{SECOND}.log"
    path.unlink()
    path.mkdir()
    found = examine(data_dir, lambda size: None)
    assert any(finding.path == path for finding in found.findings)
    assert not found.is_sound


def test_encrypted_segments_are_checked_without_the_key(data_dir: Path) -> None:
    keys = open_key_ring(data_dir, [b"k" * 32], "test")
    queue = queue_dir(data_dir)
    shutil.rmtree(queue)
    log = new_log(queue, replace(SMALL, keys=keys))
    append(log, 40, 40)
    mark(log, State.ACKED, (0, 5))
    sync(log)
    log.close()
    assert look(data_dir).is_sound
    first = queue / f"{FIRST}.log"
    change(first, 8 + 132 * 10 + 60)
    assert [finding.offset for finding in look(data_dir).findings] == [10]
    repair(data_dir)
    assert first.read_bytes()[6] == 1
    change(first, 6, bit=8)
    assert "which keys.json does not know" in only(look(data_dir)).wrong


# ---- what cannot be checked


def test_a_directory_in_use_is_refused(data_dir: Path) -> None:
    with DirectoryLock(data_dir), pytest.raises(DataDirectoryError, match="in use by process"):
        examine(data_dir, lambda size: None)


@pytest.mark.parametrize("content_", [None, b"{", b'{"format": 99}'])
def test_a_directory_of_unknown_format_is_refused(data_dir: Path, content_: bytes | None) -> None:
    path = data_dir / "format.json"
    path.unlink()
    if content_ is not None:
        path.write_bytes(content_)
    with pytest.raises(DataDirectoryError):
        examine(data_dir, lambda size: None)


def test_no_data_directory(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataDirectoryError):
            examine(path, lambda size: None)
    assert list(tmp_path.iterdir()) == []


def test_newer_definitions_are_refused(data_dir: Path) -> None:
    with sqlite3.connect(data_dir / "metadata.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(DataDirectoryError, match="newer"):
        examine(data_dir, lambda size: None)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:100] + bytes(4000)])
def test_damaged_definitions_are_reported_and_left_alone(
    data_dir: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = data_dir / "metadata.sqlite"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    change(queue_dir(data_dir) / f"{SECOND}.log", 500)
    for is_repair in (False, True):
        found = examine(data_dir, lambda size: None, repair=is_repair)
        assert "metadata.sqlite" in found.refusal
        assert path.read_bytes() == damaged
        assert [place.name for place in found.places] == ["1"]
    assert queue_dir(data_dir, 2).is_dir()


def test_missing_definitions_are_not_taken_for_none(data_dir: Path) -> None:
    (data_dir / "metadata.sqlite").unlink()
    found = examine(data_dir, lambda size: None, repair=True)
    assert "missing" in found.refusal
    check_ready(data_dir, set())


# ---- repair


def test_a_repair_keeps_what_it_removes(data_dir: Path) -> None:
    log = queue_dir(data_dir) / f"{SECOND}.log"
    change(log, 500)
    before = {path: data for path, (data, _) in fingerprints(data_dir).items()}
    found = repair(data_dir)
    kept = found.kept
    assert kept is not None
    for path in kept.rglob("*"):
        if path.is_file() and path.name != "report.json":
            assert path.read_bytes() == before[str(data_dir / path.relative_to(kept))]
    after = fingerprints(data_dir)
    gone = {path for path in before if path not in after and path.endswith((".log", ".state"))}
    assert not gone
    report = json.loads((kept / "report.json").read_text())
    assert report["findings"][0]["path"] == str(log.relative_to(data_dir))
    assert report["summary"]["damaged_messages"] == found.bad == 1


def test_two_repairs_within_a_second_keep_both(data_dir: Path) -> None:
    kept = set()
    for number in (SECOND, FIRST):
        change(queue_dir(data_dir) / f"{number}.log", 500)
        kept.add(repair(data_dir).kept)
    assert len(kept) == 2
    assert kept == set((data_dir / "removed").iterdir())


def test_a_sound_directory_is_not_repaired(data_dir: Path) -> None:
    assert repair(data_dir).kept is None
    assert not (data_dir / "removed").exists()


def test_flips_of_damaged_files_cost_what_they_hit(pristine: Path, tmp_path: Path) -> None:
    """Nothing else is missing after a repair, and nothing came to be that was not."""
    logs = sorted(queue_dir(pristine).glob("*.log"))
    for number in range(SEED, SEED + ROUNDS):
        choice = random.Random(number)
        copy = shutil.copytree(pristine, tmp_path / "copy")
        path = queue_dir(copy) / choice.choice(logs).name
        data = bytearray(path.read_bytes())
        flips = choice.choice((1, 2))
        for _ in range(flips):
            flip(data, choice)
        path.write_bytes(data)
        try:
            found = look(copy)
            repair(copy)
            ready = ready_messages(queue_dir(copy))
            assert all(content(offset) == payload for offset, payload in ready.items())
            missing = READY - ready.keys()
            assert len(missing) <= flips
            named = {o for o in missing if not is_torn(o, missing)}
            assert len(named) <= found.bad
            assert not named or not found.is_sound
        except BaseException as error:
            error.add_note(f"seed {number}: {path.name}")
            raise
        shutil.rmtree(copy)


def is_torn(offset: int, missing: set[int]) -> bool:
    """Whether nothing is left behind it: then it looks like the end of a write."""
    return missing >= set(range(offset, MESSAGES))


def test_a_repair_of_damaged_files_makes_them_sound(pristine: Path, tmp_path: Path) -> None:
    for number in range(SEED, SEED + ROUNDS):
        choice = random.Random(number)
        copy = shutil.copytree(pristine, tmp_path / "copy")
        directory = choice.choice((queue_dir(copy), delayed_dir(copy), keys_path(copy).parent))
        done = [mutate_directory(directory, choice) for _ in range(choice.choice((1, 1, 2, 5)))]
        try:
            found = look(copy)
            assert not any("report this" in finding.repair for finding in found.findings)
            repair(copy)
            ready = ready_messages(queue_dir(copy))
            assert all(content(offset) == payload for offset, payload in ready.items())
            assert ready_messages(queue_dir(copy, 2)).keys() == READY
        except BaseException as error:
            error.add_note(f"seed {number}: {', '.join(done)}")
            raise
        shutil.rmtree(copy)


# ---- parts


def test_a_message_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 1, 1, size=3 << 20)
    append(log, 2, 2)
    sync(log)
    log.close()
    check = check_log(tmp_path / "q", SMALL, lambda size: None)
    assert (check.good, check.findings) == (6, [])
    change(tmp_path / "q" / f"{0:020}.log", 2 << 20)
    check = check_log(tmp_path / "q", SMALL, lambda size: None)
    assert [finding.wrong for finding in check.findings] == ["damaged: message 0"]
