"""DeliveryCounts: what is known of messages that came back."""

from leveret.queues.delivery_counts import DeliveryCounts


def test_counts_of_purged_messages_are_forgotten() -> None:
    counts = DeliveryCounts()
    for offset in (3, 5, 8):
        counts.returned(offset, failed=True)
    counts.forget_ranges([(2, 5), (7, 9)])
    assert [counts.failures(offset) for offset in (3, 5, 8)] == [0, 1, 0]
