"""Measure what compressing the closed segments of a log would save, and cost its readers.

    pip install zstandard
    python tools/compression.py

Nothing in leveret compresses: this says why. Prints Markdown.
"""

import json
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import zstandard

# With PYTHONSAFEPATH set, as the Makefile has it, Python does not look beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_broker import markdown

KIB = 1024
SAMPLE_BYTES = 24 * KIB * KIB
LOOKS = 400
"""Single messages read, each from a block of its own."""


def events(random_source: random.Random) -> Iterator[bytes]:
    """Events as JSON, of some hundred bytes."""
    while True:
        event = {
            "id": str(uuid.UUID(int=random_source.getrandbits(128))),
            "type": random_source.choice(("order.created", "order.paid", "order.shipped")),
            "at": f"2026-11-21T10:00:{random_source.random() * 60:06.3f}Z",
            "customer": {"id": random_source.randrange(100_000), "country": "DE"},
            "items": [
                {"sku": f"A-{random_source.randrange(10_000):05}", "count": 1, "price": 19.99}
                for _ in range(random_source.randrange(1, 12))
            ],
        }
        yield json.dumps(event).encode()


def noise(random_source: random.Random) -> Iterator[bytes]:
    """Bodies that are compressed or encrypted already."""
    while True:
        yield random_source.randbytes(KIB)


def repeated(_: random.Random) -> Iterator[bytes]:
    """The same hundred bytes."""
    while True:
        yield b"x" * 100


SAMPLES: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "JSON events": events,
    "1 KiB of noise": noise,
    "100 equal bytes": repeated,
}


def measure(title: str, block_bytes: int, level: int) -> tuple[str, ...]:
    """A row: how much smaller, how fast, and how long one message takes to read."""
    source = SAMPLES[title](random.Random(1))
    records: list[bytes] = []
    size = 0
    while size < SAMPLE_BYTES:
        records.append(bytes(24) + next(source))  # with a header as in a segment
        size += len(records[-1])
    data = b"".join(records)
    blocks = [data[at : at + block_bytes] for at in range(0, size, block_bytes)]
    compressor, decompressor = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()
    begin = time.perf_counter()
    packed = [compressor.compress(block) for block in blocks]
    compress_s = time.perf_counter() - begin
    begin = time.perf_counter()
    for block in packed:
        decompressor.decompress(block)
    decompress_s = time.perf_counter() - begin
    starts = list(accumulate((len(record) for record in records[:-1]), initial=0))
    begin = time.perf_counter()
    for at in random.Random(2).sample(starts, LOOKS):
        decompressor.decompress(packed[at // block_bytes])[at % block_bytes :]
    look_us = (time.perf_counter() - begin) / LOOKS * 1e6
    return (
        title,
        f"{block_bytes // KIB} KiB",
        str(level),
        f"{size / sum(map(len, packed)):.1f}",
        f"{size / compress_s / 1e6:,.0f}",
        f"{size / decompress_s / 1e6:,.0f}",
        f"{look_us:.0f}",
    )


def main() -> None:
    """Measure each sample."""
    rows = [
        measure(title, block_bytes, level)
        for title in SAMPLES
        for block_bytes, level in ((64 * KIB, 1), (256 * KIB, 1), (64 * KIB, 3))
    ]
    head = "| messages | blocks | level | times smaller | MB/s in | MB/s out | µs for one message |"
    print(markdown(head, rows))


if __name__ == "__main__":
    main()
