"""The cases, a module for each chapter."""

from leveret.conformance.case import Case
from leveret.conformance.cases import exchange, queue

CHAPTERS = (exchange.chapter, queue.chapter)


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]
