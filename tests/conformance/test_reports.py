"""What a report says, in each of its forms."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from leveret.conformance.case import Case, Met, Profile, Seen
from leveret.conformance.report import Report, to_json
from leveret.conformance.report_html import html
from leveret.conformance.report_junit import junit
from leveret.conformance.report_table import WIDTH, table
from leveret.conformance.rules import Level, rules
from leveret.conformance.runner import Result

HOSTILE = "<script>alert(\"1\")</script> & 'x' \x1b[31m \x00 \ud800 ]]>"


def result_of(
    name: str,
    seen: Seen | None,
    *,
    rule: str = "38",
    level: Level = Level.MUST,
    spec: str = "503",
    text: str = "",
    is_error: bool = False,
    is_skipped: bool = False,
) -> Result:
    case = Case(name, rule, level, f"Title of {name}", spec, "406", lambda ground: None)
    text = text or (seen.text if seen else "")
    evidence = ("connection 1 > frame", f"connection 1 < {HOSTILE}")
    return Result(case, seen, text, evidence, 0.25, is_error, is_skipped)


@pytest.fixture
def report() -> Report:
    results = [
        result_of("one/rule-38/both", Seen(Met.BOTH, "as both")),
        result_of("one/rule-38/departs", Seen(Met.RABBITMQ, "channel closed: 406")),
        result_of("one/error-7/neither", None, rule="error-7", text=f"saw {HOSTILE}"),
        result_of("two/2.6-order/should", None, rule="2.6-order", level=Level.SHOULD, spec=""),
        result_of("two/rule-3/error", None, rule="3", text="Traceback\n  boom", is_error=True),
        result_of("two/rule-41/skipped", None, rule="41", text="needs a", is_skipped=True),
    ]
    known = rules()
    return Report(f"Broker {HOSTILE}", "1.2", Profile.RABBITMQ, results, [known[4]], [known[5]], 2)


def test_json_has_a_result_for_each_case(report: Report) -> None:
    whole = json.loads(to_json(report))
    assert whole["broker"]["version"] == "1.2"
    assert whole["profile"] == "rabbitmq"
    found = {result["case"]: result for result in whole["results"]}
    outcomes = {name: result["outcome"] for name, result in found.items()}
    assert list(outcomes.values()) == ["passed", "passed", "failed", "failed", "error", "skipped"]
    departs = found["one/rule-38/departs"]
    assert departs["rule"] == "38"
    assert departs["name"] == "exchange declare type: support"
    assert departs["profile"] == ["rabbitmq", "spec"]
    assert departs["outcomes"] == {"rabbitmq": "passed", "spec": "failed"}
    assert departs["met"] == ["rabbitmq"]
    assert departs["level"] == "MUST"
    assert (departs["spec"], departs["rabbitmq"]) == ("503", "406")
    assert departs["broker"] == "channel closed: 406"
    assert departs["evidence"][0] == "connection 1 > frame"
    assert departs["seconds"] == 0.25
    assert found["two/2.6-order/should"]["profile"] == ["rabbitmq"]


def test_json_never_counts_a_rule_that_cannot_be_observed_as_passed(report: Report) -> None:
    whole = json.loads(to_json(report))
    (unseen,) = whole["not_observable"]
    assert (unseen["rule"], unseen["reason"]) == ("4", "client rule")
    assert [rule["rule"] for rule in whole["no_case"]] == ["5"]
    assert whole["summary"]["rabbitmq"]["MUST NOT"] == {"not observable": 1}
    assert whole["summary"]["spec"]["MUST"] == {
        "passed": 1,
        "failed": 2,
        "error": 1,
        "skipped": 1,
        "no case": 1,
    }


def test_the_table_fits_and_shows_three_columns_where_they_differ(report: Report) -> None:
    lines = table(report).splitlines()
    assert max(map(len, lines)) <= WIDTH
    departs = next(number for number, line in enumerate(lines) if "one/rule-38/departs" in line)
    assert lines[departs + 1].split() == ["-", "503", "+", "406", "channel", "closed:", "406"]
    both = next(number for number, line in enumerate(lines) if "one/rule-38/both" in line)
    assert both + 1 == departs


def test_the_table_shows_failures_with_their_evidence(report: Report) -> None:
    text = table(report)
    assert "FAILED one/error-7/neither" in text
    assert "ERROR two/rule-3/error" in text
    assert "    connection 1 > frame" in text
    assert "not kept" in text
    assert not any(mark in text for mark in "\x1b\x00\ud800")


def test_junit_is_xml_with_a_failure_for_each_must(report: Report) -> None:
    root = ElementTree.fromstring(junit(report))
    tests = {f"{test.get('classname')}/{test.get('name')}": test for test in root.iter("testcase")}
    assert {name: [child.tag for child in test][1:] for name, test in tests.items()} == {
        "one/rule-38/both": [],
        "one/rule-38/departs": [],
        "one/error-7/neither": ["failure"],
        "two/2.6-order/should": ["skipped"],
        "two/rule-3/error": ["error"],
        "two/rule-41/skipped": ["skipped"],
        "not observable/rule-4": [],
        "no case/rule-5": [],
    }
    assert tests["not observable/rule-4"][0].tag == "skipped"
    failure = tests["one/error-7/neither"].find("failure")
    assert failure is not None
    assert "<script>" in (failure.text or "")
    suites = {suite.get("name"): dict(suite.attrib) for suite in root}
    assert (suites["one"]["tests"], suites["one"]["failures"]) == ("3", "1")
    assert (suites["two"]["errors"], suites["two"]["skipped"]) == ("1", "2")


class Reader(HTMLParser):
    """Notes tags and text; a document of ours closes what it opens."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {"src", "onclick"} & {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_is_one_file_and_escapes_what_it_shows(report: Report) -> None:
    document = html(report)
    document.encode()
    reader = Reader()
    reader.feed(document)
    assert reader.open == []
    assert not reader.tags & {"script", "link", "img"}
    assert "prefers-color-scheme: dark" in document
    assert any('<script>alert("1")</script>' in words for words in reader.words)
    evidence = [words for words in reader.words if "connection 1 > frame" in words]
    assert len(evidence) == 3  # what failed or could not be carried out


def rows(report: Report, name: str) -> Iterator[str]:
    return (line for line in html(report).splitlines() if name in line)


def test_html_marks_the_expectation_that_was_met(report: Report) -> None:
    lines = html(report).splitlines()
    at = next(number for number, line in enumerate(lines) if "one/rule-38/departs" in line)
    assert lines[at + 1 : at + 3] == ["<td>503</td>", '<td class="met">406</td>']
