"""Measure what priorities, expirations and delays cost on this machine, in under three minutes.

    python tools/features.py

The queues of a table take turns on one broker, in an empty directory: each ratio is the median of
those of the rounds, each rate the best, for whatever else runs on the machine only takes away. Then
1,000,000 messages wait, the broker is killed and started again, and a stream of shorter delays is
timed beside them. Prints Markdown. Exit code: 0 if all that is required is met, 1 if not.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

# With PYTHONSAFEPATH set, as the Makefile has it, Python does not look beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_broker import Broker, empty_directory, markdown, verdict

KINDS = {
    "plain": [],
    "10 priorities": ["--priorities", "10"],
    "100,000 expirations": ["--expirations", "100000"],
}
SIZES = {
    "transient, 16 B, automatic ack": [],
    "persistent, 1 KiB, confirms, ack each": ["--workload", "c"],
}
REQUIRED_RATIO = 0.5
DELAYED = ["--workload", "delayed", "--delay", "600000"]
STREAM = ["--rate", "1000", "--delay", "2000", "--warmup", "3", "--size", "100"]


def compare_queues(rounds: int, seconds: float) -> list[tuple[str, ...]]:
    """The rows of the table of queues."""
    rows: list[tuple[str, ...]] = []
    times = ["--duration", str(seconds), "--warmup", "0.5"]
    with empty_directory() as directory:
        broker = Broker(directory)
        try:
            for size, options in SIZES.items():
                runs = [
                    {kind: broker.measure(*options, *more, *times) for kind, more in KINDS.items()}
                    for _ in range(rounds)
                ]
                rows += [_row(size, kind, runs) for kind in KINDS]
        finally:
            broker.kill()
    return rows


def _row(size: str, kind: str, runs: Sequence[dict[str, dict[str, Any]]]) -> tuple[str, ...]:
    rate = max(run[kind]["consumed_per_s"] for run in runs)
    cpu_us = min(run[kind]["cpu_us"] for run in runs)
    ratio = median(run[kind]["consumed_per_s"] / run["plain"]["consumed_per_s"] for run in runs)
    cpu_ratio = median(run["plain"]["cpu_us"] / run[kind]["cpu_us"] for run in runs)
    shown = f"{rate:,.0f}", f"{ratio:.2f}", f"{cpu_us:.2f}", f"{cpu_ratio:.2f}"
    if kind == "plain":
        return size, kind, *shown, "", ""
    return size, kind, *shown, f"≥ {REQUIRED_RATIO}", verdict(is_met=ratio >= REQUIRED_RATIO)


def measure_delays(messages: int, seconds: float) -> list[tuple[str, ...]]:
    """The rows of the table of delays."""
    with empty_directory() as directory:
        broker = Broker(directory)
        try:
            idle_mb = broker.resident_mb
            filler = broker.bench(*DELAYED, "--fill", str(messages))
            while not broker.waiting:
                time.sleep(0.01)
            begin = time.monotonic()
            while broker.waiting < messages:
                assert filler.poll() is None, "the load generator ended"
                time.sleep(0.1)
            rate = messages / (time.monotonic() - begin)
            full_mb = broker.resident_mb
        finally:
            broker.kill()
        filler.communicate()
        broker = Broker(directory)
        try:
            assert broker.waiting == messages
            restart_s, restart_mb = broker.start_s, broker.resident_mb
            late = broker.measure(*STREAM, "--duration", str(seconds))["delivery_ms"]
        finally:
            broker.kill()
    rows: list[tuple[str, ...]] = [("published with confirms, messages/s", f"{rate:,.0f}", "", "")]
    for title, value, unit, limit in (
        ("memory above that of an idle broker", full_mb - idle_mb, "MB", 100),
        ("the same after the restart", restart_mb - idle_mb, "MB", 100),
        ("restart after SIGKILL, to the first connection", restart_s, "s", 3),
        ("lateness of 1,000 more messages/s, p50", late["p50"], "ms", 50),
        ("p99", late["p99"], "ms", 50),
        ("at most", late["max"], "ms", 50),
    ):
        met = verdict(is_met=value <= limit)
        rows.append((title, f"{value:.3g} {unit}", f"≤ {limit} {unit}", met))
    return rows


def main() -> int:
    """Measure, print, and say whether all is met."""
    parser = argparse.ArgumentParser(description="Measure priorities, expirations and delays.")
    parser.add_argument("--rounds", type=int, default=3, help="of each queue (default: 3)")
    parser.add_argument("--seconds", type=float, default=3, help="of each run (default: 3)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="that wait")
    arguments = parser.parse_args()
    queues = compare_queues(arguments.rounds, arguments.seconds)
    head = "| messages | queue | msgs/s | to plain | CPU µs/msg | to plain | required | met |"
    print(markdown(head, queues), flush=True)
    delays = measure_delays(arguments.messages, 3 * arguments.seconds)
    head = f"| {arguments.messages:,} messages of 100 B waiting | | required | met |"
    print(markdown(head, delays))
    return int(any("**no**" in row for row in (*queues, *delays)))


if __name__ == "__main__":
    sys.exit(main())
