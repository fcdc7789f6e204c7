"""The command `leveret conformance`."""

import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NoReturn

import click

from leveret.conformance.case import Case, Profile, Unmet
from leveret.conformance.catalogue import all_cases, rules_not_observable, rules_without_case
from leveret.conformance.ground import Facilities
from leveret.conformance.raw_client import Address, CaseTimeout, Wire
from leveret.conformance.report import Report, rule_id, rule_name, to_json
from leveret.conformance.report_html import html
from leveret.conformance.report_junit import junit
from leveret.conformance.report_table import table
from leveret.conformance.rules import Rule
from leveret.conformance.runner import Result, is_passed, run_cases

FORMATS: dict[str, Callable[[Report], str]] = {
    "table": table,
    "json": to_json,
    "junit": junit,
    "html": html,
}
_CONNECT_S = 10.0
_INTERRUPTED = 130


@click.command(
    epilog="""\b
Examples:
  leveret conformance
      every case against the broker on this machine
  leveret conformance amqp://guest:guest@other:5672/ --only exchange
      the cases that have exchange in their names
  leveret conformance --only 'rule-2?' --only '*prefetch*'
      patterns, as a shell has them
  leveret conformance --skip clients/
      without the client libraries
  leveret conformance --profile spec --format html > report.html
      what the letter of the specification says of it
  leveret conformance --restart-command 'systemctl restart leveret'
      with the cases that see what survives
  leveret conformance --list
      what there is

\b
Exit code: 0 if every MUST and MUST NOT of the profile that was looked at is
kept, 1 if not, 2 if the cases could not be run."""
)
@click.argument("uri", default="amqp://guest:guest@127.0.0.1:5672/")
@click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Cases with this in their id or rule; * and ? as in a shell. May be repeated.",
)
@click.option(
    "--skip",
    "left_out",
    multiple=True,
    metavar="PATTERN",
    help="Cases to leave out, said in the same way. May be repeated.",
)
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    default=Profile.RABBITMQ.value,
    show_default=True,
    help="Whose word counts: the specification's, or RabbitMQ's where it departs.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="table",
    show_default=True,
    help="Of the report on standard output.",
)
@click.option("--management-url", default="", metavar="URL", help="Of the broker's HTTP API.")
@click.option(
    "--restart-command",
    default="",
    metavar="COMMAND",
    help="Restarts the broker; run by the shell.",
)
@click.option("--list", "is_list", is_flag=True, help="Print the cases and leave.")
def command(
    uri: str,
    patterns: tuple[str, ...],
    left_out: tuple[str, ...],
    profile: str,
    form: str,
    management_url: str,
    restart_command: str,
    is_list: bool,
) -> None:
    """Ask the broker at URI what it does with each rule of AMQP 0-9-1, and report it.

    Works on objects with names of its own and removes them. What a case needs and is not given, a
    management URL or a way to restart the broker, has it skipped.
    """
    chosen = Profile(profile)
    cases = [
        case
        for case in all_cases()
        if chosen in case.profiles and _fits(case, patterns)
        if not (left_out and _fits(case, left_out))
    ]
    if not cases:
        _fail(f"no case of profile {chosen} fits {' or '.join(patterns)}")
    if is_list:
        for case in cases:
            click.echo(f"{case.id}  {case.level}  {case.title}")
        return
    try:
        address = Address.parse(uri)
    except ValueError:
        _fail("the URI is not of the form amqp://user:password@host:port/vhost")
    try:
        product, version = _greet(address)
    except (OSError, Unmet, CaseTimeout) as error:
        _fail(f"{address.host}:{address.port}: {error}")
    facilities = Facilities(address, management_url.rstrip("/"), restart_command)
    begin = time.monotonic()
    try:
        results = _run(cases, facilities)
    except KeyboardInterrupt:
        click.echo("leveret conformance: interrupted", err=True)
        sys.exit(_INTERRUPTED)
    report = Report(
        product,
        version,
        chosen,
        results,
        _asked(rules_not_observable(), patterns),
        _asked(rules_without_case(), patterns),
        time.monotonic() - begin,
    )
    click.echo(FORMATS[form](report))
    sys.exit(0 if is_passed(results, chosen) else 1)


def _run(cases: Sequence[Case], facilities: Facilities) -> list[Result]:
    with click.progressbar(
        length=len(cases), label=f"{len(cases)} cases", file=sys.stderr, show_pos=True
    ) as bar:
        return run_cases(cases, facilities, lambda _: bar.update(1))


def _greet(address: Address) -> tuple[str, str]:
    """Product and version of the broker. Raises OSError, Unmet or CaseTimeout."""
    wire = Wire(address, time.monotonic() + _CONNECT_S, [], "greeting")
    try:
        said = wire.open().server_properties
    finally:
        wire.close()
    return str(said.get("product", "a broker")), str(said.get("version", "of unknown version"))


def _asked(found: Sequence[Rule], patterns: Sequence[str]) -> list[Rule]:
    return [rule for rule in found if _matches((rule_id(rule.id), rule.words), patterns)]


def _fits(case: Case, patterns: Sequence[str]) -> bool:
    return _matches((case.id, rule_name(case.rule)), patterns)


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Is one of *names* like one of *patterns*, or has it in it? None at all fit everything."""
    return not patterns or any(
        pattern in name or fnmatchcase(name, pattern) for pattern in patterns for name in names
    )


def _fail(reason: str) -> NoReturn:
    click.echo(f"leveret conformance: {reason}", err=True)
    sys.exit(2)
