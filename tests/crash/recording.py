"""Recording: what a program does to a directory, as a file system sees it.

Inside `recording` the functions of `os` and `io.open` note each write, truncate, sync, creation,
renaming and removal below the root, and do them. SQLite writes past them: its files are not seen.
"""

import builtins
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PATCHED = (
    *("open", "close", "dup", "pwritev", "pwrite", "write", "ftruncate", "truncate", "fsync"),
    *("fdatasync", "rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir"),
)


@dataclass(eq=False)
class Node:
    """A file or a directory, whatever its name is."""

    label: str
    is_directory: bool = False
    entries: dict[str, "Node"] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.label


@dataclass(frozen=True, eq=False)
class Write:
    node: Node
    position: int
    data: bytes

    def __repr__(self) -> str:
        return f"write {self.node} {self.position}+{len(self.data)}"


@dataclass(frozen=True, eq=False)
class Truncate:
    node: Node
    size: int


@dataclass(frozen=True, eq=False)
class Sync:
    """fsync or fdatasync of a file or directory; of everything if there is no *node*."""

    node: Node | None


@dataclass(frozen=True, eq=False)
class Link:
    directory: Node
    name: str
    node: Node


@dataclass(frozen=True, eq=False)
class Unlink:
    directory: Node
    name: str
    node: Node


@dataclass(frozen=True, eq=False)
class Rename:
    directory: Node
    name: str
    target: Node
    new_name: str
    node: Node


@dataclass(frozen=True, eq=False)
class Note:
    """What the program promised, or was about to do, at this point."""

    facts: Any


DataChange = Write | Truncate
EntryChange = Link | Unlink | Rename
Operation = DataChange | EntryChange | Sync | Note


class Recording:
    """The operations on *root*, which is as it was at first in `start`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self.contents: dict[Node, bytes] = {}
        self.top = self._scan(root)
        self.start = {node: dict(node.entries) for node in self._directories(self.top)}
        self._descriptors: dict[int, Node] = {}

    def note(self, facts: Any) -> None:
        self.operations.append(Note(facts))

    def _scan(self, path: Path) -> Node:
        node = Node(path.name, path.is_dir())
        if node.is_directory:
            node.entries = {child.name: self._scan(child) for child in sorted(path.iterdir())}
        else:
            self.contents[node] = path.read_bytes()
        return node

    def _directories(self, node: Node) -> Iterator[Node]:
        if node.is_directory:
            yield node
            for child in node.entries.values():
                yield from self._directories(child)

    # ---- paths and descriptors

    def _place(self, path: Any, dir_fd: int | None = None) -> tuple[Node, str] | None:
        """The directory and the name of *path*, None if it is not below the root."""
        if isinstance(path, int):
            return None
        if dir_fd is not None:
            node = self._descriptors.get(dir_fd)
            return None if node is None else (node, os.fspath(path))
        full = Path(os.path.abspath(os.fspath(path)))
        if full == self.root or not full.is_relative_to(self.root):
            return None
        node = self.top
        *parents, name = full.relative_to(self.root).parts
        for part in parents:
            if part not in node.entries:
                return None
            node = node.entries[part]
        return node, name

    def _node(self, path: Any, dir_fd: int | None = None) -> Node | None:
        if not isinstance(path, int) and Path(os.path.abspath(os.fspath(path))) == self.root:
            return self.top
        place = self._place(path, dir_fd)
        return None if place is None else place[0].entries.get(place[1])

    def _link(self, place: tuple[Node, str], node: Node) -> None:
        self.operations.append(Link(*place, node))
        place[0].entries[place[1]] = node

    def _opened(self, descriptor: int, path: Any, flags: int, dir_fd: int | None) -> Node | None:
        self._descriptors.pop(descriptor, None)
        node = self._node(path, dir_fd)
        if node is None and flags & os.O_CREAT:
            place = self._place(path, dir_fd)
            if place is not None:
                node = Node(f"{place[1]}#{len(self.operations)}")
                self._link(place, node)
        if node is not None:
            self._descriptors[descriptor] = node
            if flags & os.O_TRUNC:
                self.operations.append(Truncate(node, 0))
        return node

    # ---- what stands in for the functions of os

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in PATCHED:
            patch.setattr(os, name, getattr(self, f"_os_{name}")(getattr(os, name)))
        opened = self._io_open(io.open)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)

    def _os_open(self, real: Any) -> Any:
        def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
            self._opened(descriptor, path, flags, dir_fd)
            return descriptor

        return open_

    def _os_close(self, real: Any) -> Any:
        def close(descriptor: int) -> None:
            self._descriptors.pop(descriptor, None)
            real(descriptor)

        return close

    def _os_dup(self, real: Any) -> Any:
        def dup(descriptor: int) -> int:
            copy: int = real(descriptor)
            self._descriptors.pop(copy, None)
            if descriptor in self._descriptors:
                self._descriptors[copy] = self._descriptors[descriptor]
            return copy

        return dup

    def _os_pwritev(self, real: Any) -> Any:
        def pwritev(descriptor: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
            written: int = real(descriptor, buffers, offset, flags)
            self._wrote(descriptor, offset, b"".join(buffers)[:written])
            return written

        return pwritev

    def _os_pwrite(self, real: Any) -> Any:
        def pwrite(descriptor: int, data: bytes, offset: int) -> int:
            written: int = real(descriptor, data, offset)
            self._wrote(descriptor, offset, bytes(data)[:written])
            return written

        return pwrite

    def _os_write(self, real: Any) -> Any:
        def write(descriptor: int, data: bytes) -> int:
            if descriptor not in self._descriptors:
                return int(real(descriptor, data))
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            written: int = real(descriptor, data)
            self._wrote(descriptor, position, bytes(data)[:written])
            return written

        return write

    def _wrote(self, descriptor: int, position: int, data: bytes) -> None:
        node = self._descriptors.get(descriptor)
        if node is not None and data:
            self.operations.append(Write(node, position, data))

    def _os_ftruncate(self, real: Any) -> Any:
        def ftruncate(descriptor: int, size: int) -> None:
            real(descriptor, size)
            node = self._descriptors.get(descriptor)
            if node is not None:
                self.operations.append(Truncate(node, size))

        return ftruncate

    def _os_truncate(self, real: Any) -> Any:
        def truncate(path: Any, size: int) -> None:
            real(path, size)
            node = self._descriptors.get(path) if isinstance(path, int) else self._node(path)
            if node is not None:
                self.operations.append(Truncate(node, size))

        return truncate

    def _os_fsync(self, real: Any) -> Any:
        def fsync(descriptor: int) -> None:
            # Not done: only the recording has to know.
            node = self._descriptors.get(descriptor)
            if node is not None:
                self.operations.append(Sync(node))

        return fsync

    _os_fdatasync = _os_fsync

    def _os_rename(self, real: Any) -> Any:
        def rename(source: Any, target: Any) -> None:
            real(source, target)
            place, new_place = self._place(source), self._place(target)
            if place is None or new_place is None or place[1] not in place[0].entries:
                assert place is None, f"{source} was made behind the recording"
                return
            node = place[0].entries.pop(place[1])
            new_place[0].entries[new_place[1]] = node
            self.operations.append(Rename(*place, *new_place, node))

        return rename

    _os_replace = _os_rename

    def _os_link(self, real: Any) -> Any:
        def link(source: Any, target: Any, **options: Any) -> None:
            real(source, target, **options)
            node, place = self._node(source), self._place(target)
            if node is not None and place is not None:
                self._link(place, node)

        return link

    def _os_unlink(self, real: Any) -> Any:
        def unlink(path: Any, *, dir_fd: int | None = None) -> None:
            place = self._place(path, dir_fd)
            real(path, dir_fd=dir_fd)
            if place is not None and place[1] in place[0].entries:
                self.operations.append(Unlink(*place, place[0].entries.pop(place[1])))

        return unlink

    _os_remove = _os_unlink
    _os_rmdir = _os_unlink

    def _os_mkdir(self, real: Any) -> Any:
        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            real(path, mode, dir_fd=dir_fd)
            place = self._place(path, dir_fd)
            if place is not None:
                self._link(place, Node(place[1], is_directory=True))

        return mkdir

    def _io_open(self, real: Any) -> Any:
        recording = self

        class RecordedFile(io.FileIO):
            def write(self, data: Any) -> int:
                position = self.seek(0, os.SEEK_END if "a" in self.mode else os.SEEK_CUR)
                written = super().write(data)
                recording._wrote(self.fileno(), position, bytes(data)[:written])
                return written

            def truncate(self, size: int | None = None) -> int:
                size = super().truncate(size)
                node = recording._descriptors.get(self.fileno())
                if node is not None:
                    recording.operations.append(Truncate(node, size))
                return size

            def close(self) -> None:
                if not self.closed:
                    recording._descriptors.pop(self.fileno(), None)
                super().close()

        def open_(
            path: Any, mode: str = "r", buffering: int = -1, *others: Any, **named: Any
        ) -> Any:
            is_read = not set(mode) & set("wax+")
            if is_read or isinstance(path, int) or recording._place(path) is None:
                return real(path, mode, buffering, *others, **named)
            is_new = not os.path.exists(path)
            raw = RecordedFile(path, mode.replace("b", ""))
            flags = (os.O_CREAT if is_new else 0) | (os.O_TRUNC if "w" in mode else 0)
            recording._opened(raw.fileno(), path, flags, None)
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *others, **named)

        return open_


@contextmanager
def recording(root: Path) -> Iterator[Recording]:
    """Record what happens below *root*, which is durable as it is now."""
    record = Recording(root)
    with pytest.MonkeyPatch.context() as patch:
        record.patch(patch)
        yield record
