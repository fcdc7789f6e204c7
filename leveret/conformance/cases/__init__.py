"""The cases, a module for each chapter."""

from leveret.conformance.case import Case
from leveret.conformance.cases import (
    channel,
    confirm,
    connection,
    consuming,
    delivery,
    domains,
    exchange,
    heartbeats,
    queue,
    tx,
)

CHAPTERS = (
    domains.chapter,
    connection.chapter,
    heartbeats.chapter,
    channel.chapter,
    exchange.chapter,
    queue.chapter,
    delivery.chapter,
    consuming.chapter,
    tx.chapter,
    confirm.chapter,
)


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]
