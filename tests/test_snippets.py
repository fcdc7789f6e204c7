"""The Python snippets in docs/: each is a program of its own, run against a broker."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import BrokerProcess

ROOT = Path(__file__).parent.parent
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):5672")
CLIENTS = re.compile(r"^(import|from) (pika|aio_pika)\b", re.MULTILINE)


class Snippet(NamedTuple):
    """A snippet and where it stands."""

    page: str
    line: int
    code: str


def snippets() -> list[Snippet]:
    found = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        for match in SNIPPET.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Snippet(path.name, line, match[1]))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("snippets") / "data")
    broker.start()
    yield broker
    assert broker.stop() == 0


@pytest.mark.parametrize(
    "snippet", snippets(), ids=lambda snippet: f"{snippet.page}:{snippet.line}"
)
def test_a_snippet_does_what_its_page_says(
    snippet: Snippet, server: BrokerProcess, tmp_path: Path
) -> None:
    if not CLIENTS.search(snippet.code):
        compile(snippet.code, f"{snippet.page}:{snippet.line}", "exec")
        return
    program = ADDRESS.sub(f"127.0.0.1:{server.port}", snippet.code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
