"""The programs in docs/celery.md, in one directory, as their reader would have them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.test_celery import worker_command
from tests.conftest import BrokerProcess
from tests.programs import Program

DOCUMENT = Path(__file__).parents[2] / "docs" / "celery.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", "".join(SNIPPETS[2:])])
def test_worker_and_caller(
    run: Callable[..., Program], shared_broker: BrokerProcess, tmp_path: Path, settings: str
) -> None:
    application = SNIPPETS[0].replace("localhost:5672", f"127.0.0.1:{shared_broker.port}")
    # One queue has one type.
    queue = f"app.conf.task_default_queue = {tmp_path.name!r}\n"
    (tmp_path / "tasks.py").write_text(application + queue + settings)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    worker = run(*worker_command("reader", "-c", "1"), environment=environment)
    worker.wait_for("ready.")
    assert run("-c", SNIPPETS[1], environment=environment).finish() == []
