"""Write the page that shows two brokers beside each other, from two JSON reports.

    python tools/conformance_page.py leveret.json rabbitmq.json > docs/conformance.md

Each failure needs an explanation in leveret/conformance/departures.csv, by case and broker. Exit
code: 1 if one has none, or one explains what is no failure; the page shows the first.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DEPARTURES = Path(__file__).resolve().parent.parent / "leveret" / "conformance" / "departures.csv"
_PROFILES = ("spec", "rabbitmq")
_LEVELS = ("MUST", "MUST NOT", "SHOULD", "MAY")
_OWN_NAME = re.compile(r"conformance-[0-9a-f]+-([a-z]+)\d+")
_MARKDOWN = re.compile(r"([\\`*_\[\]|<>])")
_HEAD = """\
# Conformance

What {ours} does with each rule of AMQP 0-9-1 and of RabbitMQ's extensions, with each error that
RabbitMQ's clients can meet, and with what they rely on though no document asks for it; beside it
{theirs}. [The suite](conformance-suite.md) asks any broker the same.

`make conformance-page` writes this page: do not edit it.

Where RabbitMQ departs from the specification a case knows both expectations. It counts as passed in
the profile *spec* if the first is met, in the profile *rabbitmq* if the second is; one of which the
specification says nothing counts for the latter only. RabbitMQ's expectation is that of its newest
version, so that an older one departs from it too.
"""


class Broker(NamedTuple):
    """One report: the broker, its results by case, and what explains its failures."""

    name: str
    results: Mapping[str, dict[str, Any]]
    not_observable: Sequence[dict[str, Any]]
    explained: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Broker":
        """The report in a file."""
        report = json.loads(path.read_text(encoding="utf-8"))
        product, version = report["broker"]["product"], report["broker"]["version"]
        results = {result["case"]: result for result in report["results"]}
        with DEPARTURES.open(encoding="utf-8", newline="") as file:
            explained = {
                row["case"]: row["explanation"]
                for row in csv.DictReader(file)
                if row["broker"] in (product, f"{product} {version}")
            }
        return cls(f"{product} {version}", results, report["not_observable"], explained)

    def failed(self, profile: str) -> list[dict[str, Any]]:
        """What does not meet the expectation of *profile*, or could not be carried out."""
        bad = ("failed", "error")
        return [one for one in self.results.values() if one["outcomes"].get(profile) in bad]


def main() -> int:
    """Print the page; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the page of two brokers' conformance.")
    parser.add_argument("ours", type=Path, metavar="OURS.json")
    parser.add_argument("theirs", type=Path, metavar="RABBITMQ.json")
    arguments = parser.parse_args()
    ours, theirs = Broker.read(arguments.ours), Broker.read(arguments.theirs)
    print("\n".join(_page(ours, theirs)))
    complaints = [*_complaints(ours), *_complaints(theirs)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _complaints(broker: Broker) -> Iterator[str]:
    failed = {result["case"] for result in broker.failed("rabbitmq")}
    for case in sorted(failed - broker.explained.keys()):
        yield f"{broker.name}: no explanation of {case}"
    for case in sorted(broker.explained.keys() - failed):
        yield f"{broker.name}: an explanation of {case}, which has not failed"


def _page(ours: Broker, theirs: Broker) -> Iterator[str]:
    yield _HEAD.format(ours=ours.name, theirs=theirs.name)
    yield from _summary(ours, theirs)
    yield f"## What {ours.name} does otherwise than RabbitMQ\n"
    yield from _failures(ours)
    yield f"## What {theirs.name} does otherwise than is expected of RabbitMQ\n"
    yield from _failures(theirs)
    yield from _departures(ours, theirs)
    yield from _cases(ours, theirs)
    yield from _not_observable(ours)


def _summary(ours: Broker, theirs: Broker) -> Iterator[str]:
    yield "## In numbers\n"
    heads = " | ".join(f"{name}: passed | failed | skipped" for name in (ours.name, theirs.name))
    yield f"| profile | level | cases | {heads} |\n|---|---|{'---:|' * 7}"
    for profile in _PROFILES:
        for level in _LEVELS:
            counts = [_count(broker, profile, level) for broker in (ours, theirs)]
            numbers = [str(max(count.total() for count in counts))]
            for count in counts:
                failed = count["failed"] + count["error"]
                numbers += map(str, (count["passed"], failed, count["skipped"]))
            yield f"| {profile} | {level} | {' | '.join(numbers)} |"
    unseen = Counter(rule["level"] for rule in ours.not_observable)
    said = ", ".join(f"{unseen[level]} {level}" for level in _LEVELS if unseen[level])
    yield f"\n{unseen.total()} rules [cannot be observed](#not-observable): {said}.\n"


def _count(broker: Broker, profile: str, level: str) -> Counter[str]:
    return Counter(
        result["outcomes"][profile]
        for result in broker.results.values()
        if profile in result["outcomes"] and result["level"] == level
    )


def _failures(broker: Broker) -> Iterator[str]:
    failed = broker.failed("rabbitmq")
    if not failed:
        yield "Nothing that a case looks at.\n"
        return
    yield "| case | level | expected | seen | why |\n|---|---|---|---|---|"
    for result in failed:
        why = broker.explained.get(result["case"])
        cells = (result["title"], result["level"], result["rabbitmq"], result["broker"])
        yield _row(*map(_cell, cells), _cell(why) if why else "**not explained**")
    yield ""


def _departures(ours: Broker, theirs: Broker) -> Iterator[str]:
    """Cases in which a broker meets RabbitMQ's expectation and not the specification's."""
    yield "## Where RabbitMQ departs from the specification\n"
    yield f"Seen in {theirs.name} or in {ours.name}, and which expectation each of them met.\n"
    yield f"| rule | level | specification | RabbitMQ | {ours.name} | {theirs.name} |"
    yield "|---|---|---|---|---|---|"
    names = [
        name
        for name in ours.results
        if any(_is_departure(broker.results.get(name)) for broker in (ours, theirs))
    ]
    for name in names:
        result = ours.results[name]
        yield _row(
            _cell(f"{result['rule']} {result['title']}"),
            result["level"],
            _cell(result["spec"]),
            _cell(result["rabbitmq"]),
            _met(result),
            _met(theirs.results.get(name)),
        )
    yield ""


def _is_departure(result: dict[str, Any] | None) -> bool:
    return result is not None and result["met"] == ["rabbitmq"] and "spec" in result["profile"]


def _cases(ours: Broker, theirs: Broker) -> Iterator[str]:
    yield "## Case by case\n"
    yield (
        "*yes*: what everybody expects; *spec*, *rabbitmq*: only this one's expectation; *no*: "
        "neither's.\n"
    )
    chapter = ""
    for name, result in ours.results.items():
        begin = name.partition("/")[0]
        if begin != chapter:
            chapter = begin
            yield f"\n### {chapter.replace('_', ' ')}\n"
            yield f"| rule | level | | specification | RabbitMQ | {ours.name} | {theirs.name} |"
            yield "|---|---|---|---|---|---|---|"
        spec, rabbitmq = result["spec"], result["rabbitmq"]
        texts = (result["rule"], result["level"], result["title"], spec)
        yield _row(
            *map(_cell, texts),
            "the same" if rabbitmq == spec else _cell(rabbitmq),
            _met(result),
            _met(theirs.results.get(name)),
        )
    yield ""


def _not_observable(ours: Broker) -> Iterator[str]:
    yield "## Not observable\n"
    yield "Rules that no client can see kept or broken; they count nowhere as passed.\n"
    yield "| rule | level | what it asks | why not |\n|---|---|---|---|"
    for rule in ours.not_observable:
        name = f"{rule['rule']} {rule['name']}"
        yield _row(*map(_cell, (name, rule["level"], rule["description"], rule["reason"])))


def _met(result: dict[str, Any] | None) -> str:
    """Whose expectation a broker met, in a word."""
    if result is None:
        return "not run"
    if result["outcome"] in ("skipped", "error"):
        return str(result["outcome"])
    if set(result["met"]) == set(result["profile"]):
        return "yes"
    return " ".join(result["met"]) or "**no**"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """*text* as it is, in a cell: without the names that cases choose and the marks of Markdown."""
    return _MARKDOWN.sub(r"\\\1", _OWN_NAME.sub(r"\1", " ".join(text.split())))


if __name__ == "__main__":
    sys.exit(main())
