"""Compare: the same work on two brokers in turn, so that both see the same machine."""

from collections.abc import Callable

from leveret.bench.report import Comparison, Result, middle


def compare(first: Callable[[], Result], second: Callable[[], Result], rounds: int) -> Comparison:
    """Run *first* and *second* alternately, *rounds* times each, and compare the medians."""
    pairs = [(first(), second()) for _ in range(rounds)]
    firsts, seconds = zip(*pairs, strict=True)
    return Comparison(middle(firsts), middle(seconds))
