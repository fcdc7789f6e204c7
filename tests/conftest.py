"""Guards for the whole suite."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """The links at the root are for people: `import amqp` must find Celery's library, not ours."""
    spec = importlib.util.find_spec("amqp")
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    if origin and origin.is_relative_to(ROOT / "leveret"):
        raise pytest.UsageError(
            f"`import amqp` finds {origin}, which hides Celery's library: run with PYTHONSAFEPATH=1"
        )
