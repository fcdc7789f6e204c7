"""The command `leveret bench`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import click

from leveret.bench.client import Address
from leveret.bench.compare import compare
from leveret.bench.errors import BenchError
from leveret.bench.load import Load, Progress
from leveret.bench.report import (
    Result,
    comparison_table,
    comparisons_json,
    middle,
    results_json,
    results_table,
)
from leveret.bench.workloads import CORE, WORKLOADS, Workload

_COUNT = click.IntRange(min=1)
_LIMIT = click.IntRange(min=0)


@click.command(
    epilog="""\b
Examples:
  leveret bench
      transient messages of 16 bytes, as fast as it goes
  leveret bench --size 1024 --persistent --confirm 1000 --ack-every 1
      the same with everything that makes a message safe
  leveret bench --workload core --duration 5
      each named workload for 5 s
  leveret bench --workload c --rate 500
      a named workload, changed in one point
  leveret bench --workload c --workload priority --workload ttl
      a plain queue, one with priorities, one with expirations
  leveret bench --rate 1000 --delay 2000 --warmup 3
      delayed messages; their delivery ms is how late they come
  leveret bench --workload c --against amqp://other:5672/ --rounds 3
      the same on a second broker, in turn, and the ratio

\b
Exit code: 0 if every message came once and in order, 1 if not, 2 if the run
could not be done."""
)
@click.option(
    "--uri",
    default="amqp://guest:guest@127.0.0.1:5672/",
    show_default=True,
    metavar="URI",
    help="The broker.",
)
@click.option("--against", metavar="URI", help="Do the same work on a second broker, in turn.")
@click.option(
    "--workload",
    "names",
    multiple=True,
    metavar="NAME",
    help="A named workload, or core for a to h. May be repeated.",
)
@click.option("--list", "is_list", is_flag=True, help="Print the named workloads and leave.")
@click.option("--size", type=_COUNT, help="Bytes of a body.  [16]")
@click.option(
    "--persistent", "is_persistent", is_flag=True, default=None, help="Persistent, durable queues."
)
@click.option("--confirm", type=_LIMIT, metavar="WINDOW", help="Confirms, so many outstanding.")
@click.option("--prefetch", type=click.IntRange(0, 65535), help="Unacknowledged per consumer.")
@click.option("--ack-every", type=_COUNT, help="Acknowledge each N-th, and all before it.")
@click.option("--auto-ack", is_flag=True, default=None, help="No acknowledgements.  [the default]")
@click.option("--producers", type=_COUNT, help="Connections that publish.  [1]")
@click.option("--consumers", type=_COUNT, help="Connections that consume.  [1]")
@click.option("--queues", type=_COUNT, help="Queues, shared out among both.  [1]")
@click.option("--fanout", type=_COUNT, metavar="N", help="Fan-out to N queues, a consumer each.")
@click.option("--topic", type=_COUNT, metavar="BINDINGS", help="Through a topic exchange.")
@click.option("--rate", type=_LIMIT, help="Messages per second; measures the latency.")
@click.option("--fill", type=_LIMIT, help="Publish so many, then consume them; no --duration.")
@click.option(
    "--unique", "is_unique", is_flag=True, default=None, help="Own id, time and key per message."
)
@click.option("--priorities", type=click.IntRange(1, 255), metavar="N", help="Random, 0 to N.")
@click.option("--expirations", type=_COUNT, metavar="N", help="So many different ones.")
@click.option(
    "--delay",
    "delay_ms",
    type=click.IntRange(1, 2**31 - 1),
    metavar="MS",
    help="Delayed messages, by half of it to all of it.",
)
@click.option("--duration", type=click.FloatRange(min=0.1), default=10.0, help="Seconds.  [10]")
@click.option("--warmup", type=click.FloatRange(min=0), default=2.0, help="Seconds before.  [2]")
@click.option("--rounds", type=_COUNT, default=1, help="Runs of each; prints the medians.  [1]")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def command(
    uri: str,
    against: str | None,
    names: tuple[str, ...],
    is_list: bool,
    duration: float,
    warmup: float,
    rounds: int,
    is_json: bool,
    auto_ack: bool | None,
    **changes: int | bool | None,
) -> None:
    """Measure a broker: messages per second, latency, and whether each message came.

    Works on its own queues and removes them. Counts for --duration seconds after --warmup seconds.
    """
    if is_list:
        for workload in WORKLOADS.values():
            click.echo(f"{workload.name}  {workload.title}")
        return
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    try:
        if auto_ack:
            if "ack_every" in given:
                raise BenchError("--auto-ack and --ack-every exclude each other")
            given["ack_every"] = 0
        workloads = [replace(workload, **given) for workload in _named(names)]
        broker = Address.parse(uri)
        other = Address.parse(against) if against else None
        results = _run(workloads, broker, other, rounds, warmup, duration, is_json=is_json)
    except BenchError as error:
        click.echo(f"leveret bench: {error}", err=True)
        sys.exit(2)
    if any(result.faults for result in results):
        sys.exit(1)


def _named(names: Sequence[str]) -> list[Workload]:
    """The workloads of these names, in this order; the default one without a name."""
    unknown = [name for name in names if name != "core" and name not in WORKLOADS]
    if unknown:
        raise BenchError(f"no workload {unknown[0]}; one of core, {', '.join(WORKLOADS)}")
    if "core" in names:
        names = [*CORE, *(name for name in names if name not in ("core", *CORE))]
    return [WORKLOADS[name] for name in names] or [Workload()]


def _run(
    workloads: Sequence[Workload],
    broker: Address,
    against: Address | None,
    rounds: int,
    warmup_s: float,
    duration_s: float,
    *,
    is_json: bool,
) -> list[Result]:
    """Do the work on one broker or two, print the figures and return them."""

    def measure(workload: Workload, address: Address) -> Result:
        with _progress(workload.name, address) as show:
            return Load(
                address, workload, warmup_s=warmup_s, duration_s=duration_s, on_progress=show
            ).run()

    for workload in workloads:
        workload.check()
    if against is None:
        results = [
            middle([measure(workload, broker) for _ in range(rounds)]) for workload in workloads
        ]
        click.echo(results_json(results) if is_json else results_table(results))
        return results
    pairs = [
        compare(partial(measure, workload, broker), partial(measure, workload, against), rounds)
        for workload in workloads
    ]
    click.echo(comparisons_json(pairs) if is_json else comparison_table(pairs))
    return [result for pair in pairs for result in (pair.first, pair.second)]


@contextmanager
def _progress(name: str, broker: Address) -> Iterator[Callable[[Progress], None]]:
    """Shows how a run goes in one line of the terminal, which goes with the run."""
    is_terminal = sys.stderr.isatty()

    def show(progress: Progress) -> None:
        if is_terminal:
            line = (
                f"{name} on {broker}: {progress.phase} {progress.elapsed_s:.0f} s, "
                f"{progress.published_per_s:.0f} in, {progress.consumed_per_s:.0f} out /s"
            )
            click.echo(f"\r{line[:79]}\x1b[K", err=True, nl=False)

    try:
        yield show
    finally:
        if is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
