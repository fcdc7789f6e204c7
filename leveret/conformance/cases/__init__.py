"""The cases, a module for each chapter."""

from leveret.conformance.case import Case
from leveret.conformance.cases import (
    basic_consuming,
    basic_publishing,
    basic_settling,
    channel,
    confirm,
    connection,
    consuming,
    dead_letters,
    delivery,
    domains,
    errors_channels,
    errors_frames,
    errors_handshake,
    exchange,
    exchange_bindings,
    exchange_types,
    expiry,
    heartbeats,
    life_cycle,
    life_cycle_routes,
    limits,
    misc,
    queue,
    queue_bindings,
    queue_removal,
    tx,
)

CHAPTERS = (
    domains.chapter,
    connection.chapter,
    heartbeats.chapter,
    channel.chapter,
    exchange_types.chapter,
    exchange.chapter,
    exchange_bindings.chapter,
    queue.chapter,
    queue_bindings.chapter,
    queue_removal.chapter,
    basic_publishing.chapter,
    basic_consuming.chapter,
    basic_settling.chapter,
    life_cycle.chapter,
    life_cycle_routes.chapter,
    delivery.chapter,
    consuming.chapter,
    expiry.chapter,
    limits.chapter,
    dead_letters.chapter,
    tx.chapter,
    confirm.chapter,
    errors_handshake.chapter,
    errors_frames.chapter,
    errors_channels.chapter,
    misc.chapter,
)


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]
