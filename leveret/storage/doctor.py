"""Doctor: checks a data directory that no broker uses, and repairs it.

Without a repair nothing in the directory is changed. What a repair removes or replaces is kept in
`removed/<time>/`, under the path it had, beside `report.json`, which lists what was found.
"""

import json
import logging
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from pathlib import Path

from leveret.storage.data_directory import (
    DataDirectoryError,
    DirectoryLock,
    UnsupportedDataFormat,
    read_format,
    unused,
)
from leveret.storage.errors import StorageError
from leveret.storage.files import replace_file
from leveret.storage.key_check import check_keys, repair_keys
from leveret.storage.key_ring import UnusableKeys, read_key_table
from leveret.storage.log import KIB, LogOptions
from leveret.storage.log_check import check_log, unreadable
from leveret.storage.log_repair import repair_log
from leveret.storage.log_scan import Progress
from leveret.storage.metadata import Definitions, MetadataDamaged, MetadataStore
from leveret.storage.repairs import Finding, Repairs
from leveret.storage.schema import MIGRATIONS

logger = logging.getLogger(__name__)

REMOVED_NAME = "removed"
METADATA_NAME = "metadata.sqlite"

_DELAYED_OPTIONS = LogOptions(index_interval_bytes=2 * KIB)
_QUEUE_OPTIONS = LogOptions()


@dataclass(slots=True)
class Place:
    """What was found of a queue, the delayed messages or the remembered keys of a vhost.

    *kind* says which of these, or "data directory". *name* is that of the queue.
    """

    kind: str
    vhost: str
    name: str
    directory: Path
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Diagnosis:
    """What was found in *data_dir*, by place; and how much was read.

    *good* and *bad* count messages. *refusal* is why not all can be told, empty if all can. *kept*
    is where a repair put what it removed.
    """

    data_dir: Path
    places: list[Place] = field(default_factory=list)
    queues: int = 0
    segments: int = 0
    size: int = 0
    good: int = 0
    bad: int = 0
    refusal: str = ""
    kept: Path | None = None

    @property
    def findings(self) -> Iterator[Finding]:
        """All of them."""
        for place in self.places:
            yield from place.findings

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing but what a crash leaves."""
        return all(finding.is_harmless for finding in self.findings)


class _Names:
    """The vhosts and queues by their ids; without definitions the ids are the names."""

    def __init__(self, definitions: Definitions | None) -> None:
        self._is_known = definitions is not None
        self.queues = len(definitions.queues) if definitions else 0
        self._vhosts = {row.id: row.name for row in definitions.vhosts} if definitions else {}
        queues = definitions.queues if definitions else []
        self._queues = {(row.vhost_id, row.id): row.name for row in queues}

    def vhost(self, directory: Path) -> str | None:
        """The name of the vhost in *directory*, None if there is none."""
        if not self._is_known:
            return directory.name
        return self._vhosts.get(_number(directory))

    def queue(self, vhost: Path, directory: Path) -> str | None:
        """The name of the queue in *directory*, None if there is none."""
        if not self._is_known:
            return directory.name
        return self._queues.get((_number(vhost), _number(directory)))


def data_size(data_dir: Path) -> int:
    """Return how many bytes there are to check, about."""
    total = 0
    for path in (data_dir / "vhosts").rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def examine(data_dir: Path, progress: Progress, *, repair: bool = False) -> Diagnosis:
    """Check all of *data_dir*, and with *repair* mend it.

    Raises DataDirectoryError if it is in use, no data directory, or one of a newer version.
    """
    _require(data_dir)
    lock: AbstractContextManager[object]
    lock = DirectoryLock(data_dir) if repair else unused(data_dir)
    with lock:
        return _Doctor(data_dir, progress, repair=repair).run()


def _require(data_dir: Path) -> None:
    if not data_dir.is_dir():
        raise DataDirectoryError(f"{data_dir} is no directory")
    if read_format(data_dir) is None:
        raise DataDirectoryError(f"{data_dir} is no data directory: it has no format.json")


class _Doctor:
    def __init__(self, data_dir: Path, progress: Progress, *, repair: bool) -> None:
        self._data_dir = data_dir
        self._progress = progress
        self._found = Diagnosis(data_dir)
        self._keep = _new_directory(data_dir / REMOVED_NAME)
        self._keys: frozenset[int] = frozenset()
        self._repairs = Repairs(keep=self._keep, root=data_dir) if repair else None

    def run(self) -> Diagnosis:
        found = self._found
        names = _Names(self._definitions())
        found.queues = names.queues
        self._check_own()
        for vhost in _directories(self._data_dir / "vhosts"):
            name = names.vhost(vhost)
            if name is None:
                self._leftover(vhost, "what is left of a deleted vhost")
            else:
                self._check_vhost(vhost, name, names)
        if self._repairs is not None and found.places:
            self._write_report()
        return found

    def _count(self, size: int) -> None:
        self._found.size += size
        self._progress(size)

    def _definitions(self) -> Definitions | None:
        """What the metadata says; read from a copy, because reading it in place changes it."""
        path = self._data_dir / METADATA_NAME
        if not (self._data_dir / "vhosts").exists():
            return None
        if not path.exists():
            self._found.refusal = f"{path} is missing"
            return None
        with tempfile.TemporaryDirectory() as scratch:
            try:
                for suffix in ("", "-wal"):
                    source = path.with_name(path.name + suffix)
                    if source.exists():
                        shutil.copyfile(source, Path(scratch) / source.name)
                definitions = _load(Path(scratch) / path.name)
            except (OSError, MetadataDamaged) as error:
                self._found.refusal = str(error).replace(scratch, str(self._data_dir))
                return None
        if not definitions.vhosts:
            self._found.refusal = f"{path} is damaged: it is empty"
            return None
        return definitions

    def _check_own(self) -> None:
        place = Place("data directory", "", "", self._data_dir)
        try:
            table = read_key_table(self._data_dir)
            self._keys = frozenset(table.fingerprints if table else ())
        except UnusableKeys as error:
            repair = "encrypted messages cannot be read"
            place.findings.append(Finding(self._data_dir / "keys.json", 0, str(error), repair))
        self._add(place)

    def _check_vhost(self, vhost: Path, name: str, names: _Names) -> None:
        for directory in _directories(vhost / "queues"):
            queue = names.queue(vhost, directory)
            if queue is None:
                self._leftover(directory, "what is left of a deleted queue")
                continue
            self._check_log(Place("queue", name, queue, directory), _QUEUE_OPTIONS)
        delayed = vhost / "delayed"
        if delayed.is_dir():
            self._check_log(Place("delayed messages", name, "", delayed), _DELAYED_OPTIONS)
        for path in sorted((vhost / "duplicates").glob("*.keys")):
            self._check_keys(Place("remembered keys", name, "", path.parent), path)

    def _check_log(self, place: Place, options: LogOptions) -> None:
        try:
            check = check_log(place.directory, options, self._count, self._keys)
        except OSError as error:
            place.findings.append(unreadable(place.directory, error))
        except Exception as error:
            logger.exception("check failed: %s", place.directory)
            wrong = f"cannot be checked: {error!r}"
            place.findings.append(Finding(place.directory, 0, wrong, "please report this"))
        else:
            place.findings += check.findings
            self._found.segments += len(check.segments)
            self._found.good += check.good
            self._found.bad += check.bad
            self._repair(place, lambda repairs: repair_log(check, options, repairs))
        self._add(place)

    def _check_keys(self, place: Place, path: Path) -> None:
        try:
            finding = check_keys(path, self._count)
        except OSError as error:
            finding = unreadable(path, error)
        if finding is not None:
            place.findings.append(finding)
            self._repair(place, lambda repairs: repair_keys(path, repairs))
        self._add(place)

    def _leftover(self, directory: Path, wrong: str) -> None:
        place = Place("data directory", "", "", self._data_dir)
        repair = "the broker removes it"
        place.findings.append(Finding(directory, 0, wrong, repair, is_harmless=True))
        if not self._found.refusal:
            self._repair(place, lambda _: self._move(directory))
        self._add(place)

    def _move(self, directory: Path) -> None:
        target = self._keep / directory.relative_to(self._data_dir)
        target.parent.mkdir(parents=True, exist_ok=True)
        directory.rename(target)

    def _repair(self, place: Place, work: Callable[[Repairs], None]) -> None:
        if self._repairs is None or not place.findings:
            return
        try:
            work(self._repairs)
        except (OSError, StorageError) as error:
            place.findings.append(Finding(place.directory, 0, str(error), "not repaired"))
            self._found.refusal = self._found.refusal or f"not repaired: {error}"

    def _add(self, place: Place) -> None:
        if place.findings:
            self._found.places.append(place)

    def _write_report(self) -> None:
        self._keep.mkdir(parents=True, exist_ok=True)
        self._found.kept = self._keep
        report = json.dumps(diagnosis_json(self._found), indent=2, ensure_ascii=False)
        replace_file(self._keep / "report.json", report.encode() + b"\n")


def diagnosis_json(found: Diagnosis) -> dict[str, object]:
    """Everything that was found, for `json.dumps`."""
    findings = []
    for place in found.places:
        for finding in place.findings:
            fields = asdict(finding)
            fields["path"] = str(finding.path.relative_to(found.data_dir))
            fields["harmless"] = fields.pop("is_harmless")
            about = {"kind": place.kind, "vhost": place.vhost or None, "queue": place.name or None}
            findings.append(about | fields)
    summary = {
        "sound": found.is_sound and not found.refusal,
        "queues": found.queues,
        "segments": found.segments,
        "bytes": found.size,
        "messages": found.good,
        "damaged_messages": found.bad,
        "refusal": found.refusal or None,
        "removed": str(found.kept) if found.kept else None,
    }
    return {"findings": findings, "summary": summary}


def _load(path: Path) -> Definitions:
    """Read the metadata. Raises MetadataDamaged, UnsupportedDataFormat."""
    try:
        connection = sqlite3.connect(path)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise UnsupportedDataFormat(f"{METADATA_NAME} is of a newer leveret")
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise MetadataDamaged(f"{path} is damaged: {error}") from error
    if problems != ["ok"]:
        raise MetadataDamaged(f"{path} is damaged: {'; '.join(problems)}")
    store = MetadataStore(path)
    try:
        return store.load()
    except DataDirectoryError as error:
        raise MetadataDamaged(str(error)) from error
    finally:
        store.close()


def _new_directory(parent: Path) -> Path:
    """A directory for what is removed now, which is not there yet."""
    now = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    names = chain([now], (f"{now}-{number}" for number in count(2)))
    return next(parent / name for name in names if not (parent / name).exists())


def _directories(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted((path for path in parent.iterdir() if path.is_dir()), key=_number)


def _number(directory: Path) -> int:
    return int(directory.name) if directory.name.isdecimal() else -1
