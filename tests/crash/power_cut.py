"""Power cut: what a disk may hold when the power fails in the middle of a recording.

What was synced is there. Of the rest each change by itself may have reached the disk or not:

    a write       whole, not at all, as zeros where the file grew, up to some byte, or some of its
                  sectors of 512 bytes
    a truncation  done or not
    an entry      each creation, removal and renaming done or not (a renaming never by half), or
                  all of them up to one, as on a file system with a journal
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from tests.crash.recording import (
    DataChange,
    EntryChange,
    Link,
    Node,
    Note,
    Recording,
    Rename,
    Sync,
    Truncate,
    Unlink,
    Write,
)

SECTOR = 512
KEPT, LOST, ZEROED = "kept", "lost", "zeroed"

Fate = str | int | frozenset[int]
"""What becomes of a change: KEPT, LOST, ZEROED, so many bytes of it, or these of its sectors."""
Choice = Callable[[DataChange | EntryChange], Fate]
Tree = dict[str, bytes | None]
"""The files by their path, and the directories as None."""


class Disk:
    """What is durable at one point of a recording, and what is not."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._contents = dict(recording.contents)
        self._entries = {node: dict(entries) for node, entries in recording.start.items()}
        self._data: dict[Node, list[DataChange]] = {}
        self._changes: list[EntryChange] = []
        self._links = dict.fromkeys(self._contents, 1)
        self.facts: Any = None
        self.at = 0

    def moments(self) -> Iterator[None]:
        """Go through the recording; after each operation the power may fail."""
        yield
        for operation in self._recording.operations:
            self.at += 1
            match operation:
                case Note(facts):
                    self.facts = facts
                case Write(node) | Truncate(node):
                    # The blocks of a removed file are freed after its name is gone for good.
                    if self._links.get(node, 0) > 0:
                        self._data.setdefault(node, []).append(operation)
                case Sync(node):
                    self._sync(node)
                case Link() | Unlink() | Rename():
                    self._count_links(operation)
                    self._changes.append(operation)
            yield

    @property
    def pending(self) -> list[DataChange | EntryChange]:
        """What was not synced."""
        data = [change for changes in self._data.values() for change in changes]
        return [*data, *self._changes]

    @property
    def entry_changes(self) -> list[EntryChange]:
        return self._changes

    def image(self, choose: Choice) -> Tree:
        """What is there after a power cut that did to each change what *choose* says."""
        entries = {node: dict(names) for node, names in self._entries.items()}
        for change in self._changes:
            if choose(change) == KEPT:
                _change_entry(entries, change)
        tree: Tree = {}

        def walk(directory: Node, path: str) -> None:
            for name, node in entries.get(directory, {}).items():
                if node.is_directory:
                    tree[path + name] = None
                    walk(node, f"{path}{name}/")
                else:
                    tree[path + name] = self._content(node, choose)

        walk(self._recording.top, "")
        return tree

    def _content(self, node: Node, choose: Choice) -> bytes:
        data = bytearray(self._contents.get(node, b""))
        for change in self._data.get(node, ()):
            _change_data(data, change, choose(change))
        return bytes(data)

    def _sync(self, node: Node | None) -> None:
        for written in [node] if node is not None else list(self._data):
            changes = self._data.pop(written, [])
            if changes:
                data = bytearray(self._contents.get(written, b""))
                for change in changes:
                    _change_data(data, change, KEPT)
                self._contents[written] = bytes(data)
        later = []
        for entry in self._changes:
            if node is None or node is entry.directory or node is getattr(entry, "target", None):
                _change_entry(self._entries, entry)
            else:
                later.append(entry)
        self._changes = later

    def _count_links(self, change: EntryChange) -> None:
        if isinstance(change, Link):
            self._links[change.node] = self._links.get(change.node, 0) + 1
        elif isinstance(change, Unlink):
            self._links[change.node] = self._links.get(change.node, 1) - 1


def _change_entry(entries: dict[Node, dict[str, Node]], change: EntryChange) -> None:
    names = entries.setdefault(change.directory, {})
    match change:
        case Link():
            names[change.name] = change.node
        case Unlink():
            if names.get(change.name) is change.node:
                del names[change.name]
        case Rename():
            if names.get(change.name) is change.node:
                del names[change.name]
            entries.setdefault(change.target, {})[change.new_name] = change.node


def _change_data(data: bytearray, change: DataChange, fate: Fate) -> None:
    if fate == LOST:
        return
    if isinstance(change, Truncate):
        if fate == KEPT:
            _resize(data, change.size)
        return
    start, new = change.position, change.data
    if isinstance(fate, int):
        new = new[:fate]
    size = len(data)
    if len(data) < start + len(new):
        _resize(data, start + len(new))
    if fate == ZEROED:
        return
    if isinstance(fate, frozenset):
        for sector in fate:
            low = max(sector * SECTOR, start)
            high = min((sector + 1) * SECTOR, start + len(new))
            data[low:high] = new[low - start : high - start]
        return
    assert size <= len(data)
    data[start : start + len(new)] = new


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


# ---- which of all the possible images to look at


@dataclass(frozen=True)
class Image:
    """One possible outcome; `name` says which, for who looks into a failure.

    `is_journaled` says that entries were lost from some point on, not here and there: what every
    file system with a journal promises.
    """

    name: str
    tree: Tree
    facts: Any
    is_journaled: bool

    def restore(self, root: Path) -> Path:
        """Make the directory *root* as it is in the image."""
        root.mkdir(parents=True)
        for path, content in self.tree.items():
            if content is None:
                (root / path).mkdir(parents=True, exist_ok=True)
            else:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        return root


def images(
    recording: Recording, seed: int, *, most_at_once: int = 4, samples: int = 3, stride: int = 1
) -> Iterator[Image]:
    """What a power cut may leave at every moment of *recording* (each *stride*-th), no two equal.

    All combinations of kept and lost where at most *most_at_once* changes are not synced;
    otherwise the extremes and some *samples*.
    """
    choice = random.Random(seed)
    disk = Disk(recording)
    seen: set[bytes] = set()
    for _ in disk.moments():
        if disk.at % stride or disk.facts is None:
            continue
        for name, choose in _choices(disk, choice, most_at_once, samples):
            tree = disk.image(choose)
            print_ = _fingerprint(tree, disk.facts)
            if print_ not in seen:
                seen.add(print_)
                kept = [choose(change) == KEPT for change in disk.entry_changes]
                is_journaled = kept == sorted(kept, reverse=True)
                yield Image(f"operation {disk.at}: {name}", tree, disk.facts, is_journaled)


def random_image(recording: Recording, choice: random.Random) -> Image:
    """What a power cut may leave at some moment from the first note on, on a journal's disk."""
    first = next(at for at, op in enumerate(recording.operations, 1) if isinstance(op, Note))
    wanted = choice.randint(first, len(recording.operations))
    disk = Disk(recording)
    for _ in disk.moments():
        if disk.at == wanted:
            break
    fates = _sample(disk, choice, is_journaled=True)
    return Image(f"{wanted}: {fates}", disk.image(fates.__getitem__), disk.facts, True)


def _fingerprint(tree: Tree, facts: Any) -> bytes:
    digest = sha256(repr((id(facts), sorted(tree))).encode())
    for path in sorted(tree):
        digest.update(b"\0%d\0" % len(tree[path] or b""))
        digest.update(tree[path] or b"")
    return digest.digest()


def _choices(
    disk: Disk, choice: random.Random, most_at_once: int, samples: int
) -> Iterator[tuple[str, Choice]]:
    pending = disk.pending
    yield "all kept", lambda change: KEPT
    if not pending:
        return
    yield "all lost", lambda change: LOST
    yield "data lost", lambda change: LOST if isinstance(change, DataChange) else KEPT
    yield "data zeroed", lambda change: ZEROED if isinstance(change, Write) else KEPT
    yield "entries lost", lambda change: KEPT if isinstance(change, DataChange) else LOST
    if len(pending) <= most_at_once:
        for fates in product((KEPT, LOST), repeat=len(pending)):
            yield f"{fates}", dict(zip(pending, fates, strict=True)).__getitem__
    for _ in range(samples):
        chosen = _sample(disk, choice, is_journaled=choice.random() < 0.5)
        yield f"{chosen}", chosen.__getitem__


def _sample(
    disk: Disk, choice: random.Random, *, is_journaled: bool
) -> dict[DataChange | EntryChange, Fate]:
    kept = choice.choice((0.2, 0.5, 0.9))
    fates: dict[DataChange | EntryChange, Fate] = {}
    for change in disk.pending:
        fates[change] = KEPT if choice.random() < kept else LOST
        if isinstance(change, Write) and choice.random() < 0.5:
            fates[change] = _damaged(change, choice)
    if is_journaled:
        until = choice.randint(0, len(disk.entry_changes))
        for number, entry in enumerate(disk.entry_changes):
            fates[entry] = KEPT if number < until else LOST
    return fates


def _damaged(change: Write, choice: random.Random) -> Fate:
    size = len(change.data)
    first, last = change.position // SECTOR, (change.position + size) // SECTOR
    sectors = [sector for sector in range(first, last + 1) if choice.random() < 0.5]
    fates: list[Fate] = [ZEROED, choice.randrange(size), frozenset(sectors)]
    return choice.choice(fates)
