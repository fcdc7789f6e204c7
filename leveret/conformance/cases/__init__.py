"""The cases, a module for each chapter."""

from leveret.conformance.case import Case
from leveret.conformance.cases import consuming, delivery, exchange, queue

CHAPTERS = (exchange.chapter, queue.chapter, delivery.chapter, consuming.chapter)


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]
