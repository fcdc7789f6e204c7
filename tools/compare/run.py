"""Compare leveret with RabbitMQ on this machine, row by row.

    python tools/compare/run.py --amqpload PATH/amqpload.c --markdown table.md --json table.json

Each run of a row starts one broker in an empty directory, measures, and stops it; the brokers take
turns. A row's figures are the medians of its runs. The load generator is a C program that is not
part of this repository. Exit code: 0 if all that is required is met, 1 if not, 2 if the
measurement could not be done.
"""

import argparse
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# With PYTHONSAFEPATH set, as the Makefile has it, Python does not look beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from brokers import Broker, before, leveret, rabbitmq
from processes import CompareError
from report import Line, lines, markdown, read_earlier, summary, to_json
from rows import Row, Value, rows
from session import Settings, allow_open_files, build, fresh

_LEVERET = f"{shlex.quote(str(Path(sys.executable).parent / 'leveret'))} serve"


def main() -> int:
    """Measure what the arguments ask for; return the exit code."""
    arguments = _parser().parse_args()
    try:
        table = _measure_all(arguments)
    except CompareError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    return 1 if any(line.is_met is False for line in table) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare leveret with RabbitMQ on this machine, row by row.",
        epilog=f"rows: {' '.join(rows())}",
    )
    parser.add_argument("--amqpload", metavar="PATH", help="the load generator or its C source")
    parser.add_argument("--only", metavar="ROWS", default="", help="such as a16,c,mem")
    parser.add_argument("--broker", choices=["leveret", "rabbitmq", "both"], default="both")
    parser.add_argument(
        "--leveret",
        metavar="COMMAND",
        default=f"{_LEVERET} --data-dir {{directory}}/data --port {{port}}",
        help="starts leveret (default: %(default)s)",
    )
    parser.add_argument(
        "--before",
        metavar="COMMAND",
        help="starts leveret of an earlier commit, which takes turns with the others; "
        "{directory} and {port} as above",
    )
    parser.add_argument("--runs", type=int, default=3, help="of each row and broker (default: 3)")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default: 10)")
    parser.add_argument("--warmup", type=float, default=2, help="seconds before (default: 2)")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="of g and mem (default: 1000000)"
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="JSON of an earlier run")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="else to standard output")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser


def _measure_all(arguments: argparse.Namespace) -> list[Line]:
    """Measure the chosen rows, write the table after each, and return its lines."""
    chosen = _chosen(arguments.only)
    brokers = [
        broker
        for broker in (leveret(arguments.leveret), rabbitmq())
        if arguments.broker in (broker.name, "both")
    ]
    if arguments.before:
        brokers.append(before(arguments.before))
    earlier = read_earlier(arguments.baseline) if arguments.baseline else {}
    allow_open_files()
    table: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        settings = Settings(
            build(arguments.amqpload, Path(directory)),
            arguments.seconds,
            arguments.warmup,
            arguments.messages,
        )
        for number, row in enumerate(chosen, 1):
            _say(f"[{number}/{len(chosen)}] {row.name}")
            values = _measure(row, brokers, settings, arguments.runs)
            new = lines(row, values, earlier)
            for line in new:
                _say(summary(line))
            table += new
            # A run takes half an hour: what is measured is kept, whatever comes.
            _write(arguments, table)
    if not arguments.markdown:
        print(markdown(table), end="")
    return table


def _chosen(only: str) -> list[Row]:
    """The rows named in *only*, or all."""
    known = rows()
    names = [name.strip() for name in only.split(",") if name.strip()] or list(known)
    for name in names:
        if name not in known:
            raise CompareError(f"no row {name}; there are {' '.join(known)}")
    return [known[name] for name in names]


def _measure(
    row: Row, brokers: Sequence[Broker], settings: Settings, runs: int
) -> dict[str, list[Sequence[Value]]]:
    """The values of each run by broker; the brokers take turns."""
    values: dict[str, list[Sequence[Value]]] = {broker.name: [] for broker in brokers}
    for run in range(1, runs + 1):
        for broker in brokers:
            with fresh(broker, settings) as session:
                measured = row.measure(session)
            values[broker.name].append(measured)
            _say(
                f"  {broker.name} {run}/{runs}: {', '.join(f'{one.value:.6g}' for one in measured)}"
            )
    return values


def _write(arguments: argparse.Namespace, table: Sequence[Line]) -> None:
    if arguments.markdown:
        arguments.markdown.write_text(markdown(table))
    if arguments.json:
        circumstances = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "runs": arguments.runs,
            "seconds": arguments.seconds,
            "messages": arguments.messages,
        }
        arguments.json.write_text(to_json(table, circumstances))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
