"""The snippets of docs/queues.md run, one behind the other."""

import re
from pathlib import Path

from tests.conftest import BrokerProcess
from tests.features.test_declaring import VALUES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "queues.md"


def test_snippets_run(shared_broker: BrokerProcess) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) > 10
    program = "\n".join(snippets).replace("localhost:5672", f"127.0.0.1:{shared_broker.port}")
    names: dict[str, object] = {}
    exec(compile(program, str(DOCUMENT), "exec"), names)
    names["connection"].close()  # type: ignore[attr-defined]


def test_every_argument_is_described() -> None:
    text = DOCUMENT.read_text().replace("`-min`", "`x-delayed-retry-min`")
    text = text.replace("`-max`", "`x-delayed-retry-max`")
    assert [argument for argument in VALUES if f"`{argument}`" not in text] == []
