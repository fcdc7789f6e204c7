"""Kinds of option values: each reads what a source gave and says what it expects."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

NONE = "none"

SIZE_UNITS = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB}

T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)


class Kind(Protocol[T_co]):
    """What values an option takes."""

    @property
    def expectation(self) -> str:
        """What to write, as it stands behind "expected"."""

    def parse(self, value: object) -> T_co:
        """The checked value of what a source gave; raises ValueError if it is not one."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is not empty."""

    expectation: str

    def parse(self, value: object) -> str:
        """The text itself."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Folder:
    """A path, which need not exist yet."""

    expectation: str = "a path"

    def parse(self, value: object) -> Path:
        """The path as written: a relative one is relative to the working directory."""
        if isinstance(value, Path):
            return value
        return Path(Text(self.expectation).parse(value))


@dataclass(frozen=True, slots=True)
class Optional(Generic[T_co]):
    """A value of another kind, or none."""

    kind: Kind[T_co]

    @property
    def expectation(self) -> str:
        """That of the other kind, or the word."""
        return f"{self.kind.expectation}, or {NONE}"

    def parse(self, value: object) -> T_co | None:
        """The value, or None for the word."""
        return None if value == NONE else self.kind.parse(value)


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number, as a number or in decimal digits."""

    minimum: int
    maximum: int

    @property
    def expectation(self) -> str:
        """The range."""
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, value: object) -> int:
        """The number, if it is in the range."""
        if isinstance(value, str) and re.fullmatch("[0-9]{1,19}", value):
            value = int(value)
        # True is an int to Python, not to somebody who writes `port = true`.
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(value)
        if not self.minimum <= value <= self.maximum:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, with or without a binary unit: 67108864 or "64MiB"."""

    minimum: int
    maximum: int

    @property
    def expectation(self) -> str:
        """The range."""
        return f"a size from {format_size(self.minimum)} to {format_size(self.maximum)}"

    def parse(self, value: object) -> int:
        """The size in bytes, if it is in the range."""
        if isinstance(value, str) and (
            match := re.fullmatch("([0-9]{1,19}) ?(KiB|MiB|GiB|TiB)", value)
        ):
            value = int(match[1]) * SIZE_UNITS[match[2]]
        return Integer(self.minimum, self.maximum).parse(value)


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of a whole, with a point, or a size: 0.6 or "2GiB"."""

    size: Size

    @property
    def expectation(self) -> str:
        """Both ranges."""
        return f"a fraction up to 1.0, or {self.size.expectation}"

    def parse(self, value: object) -> float:
        """The fraction as a float, or the size in bytes as an int."""
        if isinstance(value, str) and re.fullmatch("[01]?\\.[0-9]{1,9}", value):
            value = float(value)
        if not isinstance(value, float):
            return self.size.parse(value)
        if not 0 < value <= 1:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Choice(Generic[E]):
    """One word of an enumeration."""

    words: type[E]

    @property
    def expectation(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.words)

    def parse(self, value: object) -> E:
        """The member of the enumeration."""
        if not isinstance(value, str):
            raise ValueError(value)
        return self.words(value)


def format_size(size: int) -> str:
    """A size in bytes in the largest unit that holds it exactly, in the form `Size` reads."""
    for unit, factor in SIZE_UNITS.items():
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
