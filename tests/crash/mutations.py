"""Damage to the files of a log: what a failing disk, a bad cable or a careless hand does."""

import random
from collections.abc import Callable
from pathlib import Path

Mutation = Callable[[bytearray, random.Random], None]


def flip(data: bytearray, choice: random.Random) -> None:
    """One bit."""
    if data:
        data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)


def overwrite(data: bytearray, choice: random.Random) -> None:
    start = _place(data, choice)
    length = min(choice.choice((1, 4, 16, 512)), len(data) - start)
    data[start : start + length] = choice.randbytes(length)


def truncate(data: bytearray, choice: random.Random) -> None:
    del data[_place(data, choice) :]


def insert(data: bytearray, choice: random.Random) -> None:
    start = _place(data, choice)
    data[start:start] = choice.randbytes(choice.choice((1, 8, 24, 100)))


def remove(data: bytearray, choice: random.Random) -> None:
    start = _place(data, choice)
    del data[start : start + choice.choice((1, 8, 24, 512))]


def zero(data: bytearray, choice: random.Random) -> None:
    start = _place(data, choice)
    length = min(choice.choice((4, 512, 1 << 20)), len(data) - start)
    data[start : start + length] = bytes(length)


def extend(data: bytearray, choice: random.Random) -> None:
    data += bytes(choice.choice((1, 24, 4096)))


def swap(data: bytearray, choice: random.Random) -> None:
    """Two blocks."""
    size = choice.choice((8, 16, 128))
    first, second = _place(data, choice), _place(data, choice)
    one, two = bytes(data[first : first + size]), bytes(data[second : second + size])
    if first + size <= second and len(one) == len(two):
        data[first : first + size], data[second : second + size] = two, one


def repeat(data: bytearray, choice: random.Random) -> None:
    """A block again behind itself."""
    start = _place(data, choice)
    data[start:start] = data[start : start + choice.choice((8, 16, 128))]


def _place(data: bytearray, choice: random.Random) -> int:
    return choice.randrange(len(data) + 1)


IN_A_FILE: tuple[Mutation, ...] = (
    *(flip, flip, flip, overwrite, truncate, insert, remove, zero, extend, swap, repeat),
)


def mutate_file(path: Path, choice: random.Random) -> str:
    mutation = choice.choice(IN_A_FILE)
    data = bytearray(path.read_bytes())
    mutation(data, choice)
    path.write_bytes(data)
    return f"{mutation.__name__} {path.name}"


def mutate_directory(directory: Path, choice: random.Random) -> str:
    """Damage one file of *directory*, or its name; answers what was done."""
    paths = sorted(directory.iterdir())
    path = choice.choice(paths)
    if choice.random() < 0.8 or len(paths) < 2:
        return mutate_file(path, choice)
    other = choice.choice([candidate for candidate in paths if candidate != path])
    kind = choice.choice(("delete", "overwrite with", "rename to", "copy to"))
    if kind == "delete":
        path.unlink()
        return f"delete {path.name}"
    if kind == "overwrite with":
        path.write_bytes(other.read_bytes())
        return f"overwrite {path.name} with {other.name}"
    number = choice.choice((choice.randrange(200), 10**19, (1 << 64) + 5, 0))
    new = directory / f"{number:020}{path.suffix}"
    if kind == "rename to":
        path.rename(new)
    else:
        new.write_bytes(path.read_bytes())
    return f"{kind} {path.name} {new.name}"
