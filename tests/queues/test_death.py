"""Dead letters: the example of RabbitMQ byte for byte, long chains of deaths, whole messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.amqp.message import (
    DEAD_LETTERED,
    EXPIRES,
    HAS_BCC,
    TRANSIENT,
    encode_attributes,
    encode_content,
    encode_head,
    encode_message,
    split_message,
)
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field, encode_table, table_of
from leveret.queues.death import DeathReason, dead_letter, record_death, would_cycle

NO_PROPERTIES = b"\x00\x3c\x00\x00" + bytes(10)
REASONS = [*DeathReason]


def long(text):
    return len(text).to_bytes(4, "big") + text


def die(headers, queue="q", reason="expired", *, has_history=False, now_s=7, **changes):
    published = {"exchange": "ex", "routing_keys": ["key"], "expiration": None} | changes
    return record_death(
        headers, has_history=has_history, queue=queue, reason=reason, now_s=now_s, **published
    )


def deaths(headers):
    return [entry.value for entry in headers["x-death"].value]


def summary(headers):
    return [
        (death["queue"].value, death["reason"].value, death["count"].value)
        for death in deaths(headers)
    ]


def test_the_first_death_of_a_message_on_the_wire():
    headers = die({}, routing_keys=["key", "copy"], expiration="60000")
    entry = b"".join(
        [
            b"\x13original-expirationS" + long(b"60000"),
            b"\x05countl" + (1).to_bytes(8, "big"),
            b"\x06reasonS" + long(b"expired"),
            b"\x05queueS" + long(b"q"),
            b"\x04timeT" + (7).to_bytes(8, "big"),
            b"\x08exchangeS" + long(b"ex"),
            b"\x0crouting-keysA" + long(b"S" + long(b"key") + b"S" + long(b"copy")),
        ]
    )
    assert encode_table(headers) == long(
        b"".join(
            [
                b"\x07x-deathA" + long(b"F" + long(entry)),
                b"\x16x-first-death-exchangeS" + long(b"ex"),
                b"\x13x-first-death-queueS" + long(b"q"),
                b"\x14x-first-death-reasonS" + long(b"expired"),
                b"\x15x-last-death-exchangeS" + long(b"ex"),
                b"\x12x-last-death-queueS" + long(b"q"),
                b"\x13x-last-death-reasonS" + long(b"expired"),
            ]
        )
    )


def test_without_an_expiration_no_original_is_recorded():
    [death] = deaths(die({}))
    assert [*death] == ["count", "reason", "queue", "time", "exchange", "routing-keys"]


def test_a_repeated_death_counts_and_moves_to_the_front():
    headers = die({"a": Field("s", 1)}, expiration="5")
    headers = die(headers, "other", "rejected", has_history=True, exchange="dlx")
    before = encode_table(headers)
    again = die(headers, has_history=True, now_s=99, exchange="new", routing_keys=["n"])
    assert summary(again) == [("q", "expired", 2), ("other", "rejected", 1)]
    first = deaths(again)[0]
    assert first["time"] == Field("T", 7)
    assert first["exchange"] == Field("S", "ex")
    assert first["routing-keys"] == Field("A", [Field("S", "key")])
    assert first["original-expiration"] == Field("S", "5")
    assert [again[f"x-first-death-{what}"].value for what in ("reason", "queue", "exchange")] == [
        *("expired", "q", "ex")
    ]
    assert [again[f"x-last-death-{what}"].value for what in ("reason", "queue", "exchange")] == [
        *("expired", "q", "new")
    ]
    assert encode_table(headers) == before


def test_one_queue_has_an_entry_for_each_reason():
    headers = die({})
    headers = die(headers, reason="maxlen", has_history=True)
    headers = die(headers, reason="delivery_limit", has_history=True)
    assert [reason for _, reason, _ in summary(headers)] == ["delivery_limit", "maxlen", "expired"]


@pytest.mark.parametrize("theirs", [Field("S", "no array"), Field("A", [Field("V", None)])])
def test_a_history_that_a_publisher_sent_is_replaced(theirs):
    sent = {
        "x-death": theirs,
        "x-first-death-queue": Field("S", "forged"),
        "mine": Field("t", True),
    }
    headers = die(sent)
    assert summary(headers) == [("q", "expired", 1)]
    assert headers["x-first-death-queue"] == Field("S", "q")
    assert headers["mine"] == Field("t", True)
    assert not would_cycle(sent, has_history=False, queue="q", reason="expired")


def chain(*path):
    """The headers after deaths written as queue:reason."""
    headers = {}
    for step in path:
        headers = die(headers, *step.split(":"), has_history=bool(headers))
    return headers


@pytest.mark.parametrize(
    ("path", "target", "cycles"),
    [
        (["a:expired"], "a", True),
        (["a:expired"], "b", False),
        (["a:maxlen"], "a", True),
        (["a:delivery_limit"], "a", True),
        (["a:rejected"], "a", False),
        (["a:expired", "b:expired"], "a", True),
        (["a:expired", "b:expired", "c:maxlen"], "a", True),
        (["a:rejected", "b:expired"], "a", False),
        (["a:expired", "b:rejected", "c:expired"], "a", False),
        (["a:rejected", "b:expired"], "b", True),
        (["a:expired", "a:rejected", "b:expired"], "a", False),
        (["a:rejected", "a:expired", "b:expired"], "a", True),
        (["a:rejected", "b:expired", "a:rejected", "b:expired"], "a", False),
        (["w:rejected", "a:expired", "b:expired"], "a", True),
    ],
)
def test_a_message_that_only_the_broker_sends_round_is_dropped(path, target, cycles):
    reason = path[-1].split(":")[1]
    assert would_cycle(chain(*path), has_history=True, queue=target, reason=reason) == cycles


others = st.dictionaries(
    st.sampled_from(["a", "CC", "x-delay", "é"]),
    st.integers() | st.text(max_size=3) | st.lists(st.booleans(), max_size=2),
).filter(lambda values: all(-(2**63) <= v < 2**63 for v in values.values() if isinstance(v, int)))
steps = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(REASONS)), min_size=1)


@settings(max_examples=20)
@given(others, st.randoms(use_true_random=False))
def test_a_long_chain_of_deaths_keeps_its_order(values, random):
    path = [(random.choice("abcdefgh"), random.choice(REASONS)) for _ in range(300)]
    headers = kept = table_of(values)
    order = []
    for number, (queue, reason) in enumerate(path):
        headers = die(headers, queue, reason, has_history=number > 0, now_s=number)
        order = [(queue, reason), *[key for key in order if key != (queue, reason)]]
        assert [death[:2] for death in summary(headers)] == order
    assert sum(count for _, _, count in summary(headers)) == len(path)
    for death in deaths(headers):
        key = death["queue"].value, death["reason"].value
        assert death["count"].value == path.count(key)
        assert death["time"].value == path.index(key)
    assert encode_table({name: headers[name] for name in kept}) == encode_table(kept)
    assert [name for name in headers if name in kept] == [*kept]
    assert (headers["x-first-death-queue"].value, headers["x-first-death-reason"].value) == path[0]
    assert (headers["x-last-death-queue"].value, headers["x-last-death-reason"].value) == path[-1]


@given(steps)
def test_a_cycle_is_what_its_definition_says(path):
    headers = {}
    for queue, reason in path:
        headers = die(headers, queue, reason, has_history=bool(headers))
    for target in "abcdef":
        newer = []
        for queue, reason, _ in summary(headers):
            newer.append(reason)
            if queue == target:
                break
        else:
            newer = [DeathReason.REJECTED]
        expected = DeathReason.REJECTED not in newer
        assert would_cycle(headers, has_history=True, queue=target, reason=path[-1][1]) == expected


def bury(message, attributes, *, routing_key=None, reason="expired", queue="q", exchange="dlx"):
    return dead_letter(
        message,
        attributes,
        queue=queue,
        reason=reason,
        exchange=exchange,
        routing_key=routing_key,
        now_s=7,
    )


def parts(letter):
    """Exchange, routing key, headers, the other properties and the body of a dead letter."""
    exchange, key, header, body = split_message(letter.attributes, letter.message)
    view = PropertyView(header)
    return exchange, key, view.headers, view.with_changes(headers=None), body


listed = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text(max_size=5),
        "content_encoding": st.just("gzip"),
        "headers": others.map(table_of),
        "delivery_mode": st.just(2),
        "priority": st.integers(0, 9),
        "correlation_id": st.text(max_size=3),
        "reply_to": st.just("back"),
        "expiration": st.integers(0, 99999).map(str),
        "message_id": st.just("id"),
        "timestamp": st.integers(0, 2**63),
        "cluster_id": st.just("c"),
    },
)


@given(
    listed,
    st.binary(max_size=9000),
    st.sampled_from([0, TRANSIENT, 1 << 40 | EXPIRES]),
    st.none() | st.just("rk"),
    st.integers(1, 4),
)
def test_a_dead_letter_is_the_same_message_elsewhere(properties, body, flags, key, times):
    header = PropertyView(NO_PROPERTIES).with_changes(**properties)
    header = header[:4] + len(body).to_bytes(8, "big") + header[12:]
    head = encode_head(b"ex", b"key")
    content = encode_content(header, body, 3, 4096)
    message, attributes = head + content, encode_attributes(len(head), 3, flags)
    for number in range(times):
        letter = bury(message, attributes, routing_key=key, queue=f"q{number % 2}")
        message, attributes = letter.message, letter.attributes
        assert parts(letter)[2]["x-death"] == letter.history["x-death"]
    exchange, routing_key, headers, other_properties, _ = parts(letter)
    assert (exchange, routing_key) == ("dlx", key or "key")
    assert other_properties == PropertyView(header).with_changes(headers=None, expiration=None)
    kept = properties.get("headers", {}).copy()
    if key:
        kept.pop("CC", None)
    assert {name: headers[name] for name in headers if name in kept or name == "CC"} == kept
    assert sum(count for _, _, count in summary(headers)) == times
    assert attributes & ~0xFFFF == encode_attributes(0, 3, flags & ~EXPIRES | DEAD_LETTERED)
    body_frames = content[8 + len(header) :]
    assert message.endswith(b"\xce" + body_frames)


@given(others, st.sampled_from(REASONS), st.none() | st.just("50"), st.text(max_size=4))
def test_the_headers_of_a_dead_letter_are_those_of_record_death(values, reason, expiration, key):
    headers = table_of(values)
    header = PropertyView(NO_PROPERTIES).with_changes(headers=headers, expiration=expiration)
    attributes, message = encode_message("ex", key, header, b"", 0)
    letter = bury(message, attributes, reason=reason)
    expected = die(headers, reason=reason, routing_keys=[key], expiration=expiration)
    assert encode_table(parts(letter)[2]) == encode_table(expected)


def test_copies_are_recorded_and_blind_copies_are_not():
    headers = table_of({"CC": ["c1", "c2"], "BCC": ["b"]})
    header = PropertyView(NO_PROPERTIES).with_changes(headers=headers)
    attributes, message = encode_message("ex", "key", header, b"", 0)
    letter = bury(message, attributes | HAS_BCC)
    _, key, after, _, _ = parts(letter)
    keys = [field.value for field in deaths(after)[0]["routing-keys"].value]
    assert keys == ["key", "c1", "c2"]
    assert (key, after["CC"], after["BCC"]) == ("key", headers["CC"], headers["BCC"])
    assert letter.attributes & HAS_BCC


def test_a_routing_key_of_the_queue_ends_the_copies():
    headers = table_of({"CC": ["c"], "BCC": ["b"]})
    header = PropertyView(NO_PROPERTIES).with_changes(headers=headers)
    attributes, message = encode_message("ex", "key", header, b"", 0)
    letter = bury(message, attributes | HAS_BCC, routing_key="dead")
    assert parts(letter)[1] == "dead"
    assert not letter.attributes & HAS_BCC
    _, _, after, _, _ = parts(bury(letter.message, letter.attributes, reason="rejected"))
    routing_keys = [
        [field.value for field in death["routing-keys"].value] for death in deaths(after)
    ]
    assert routing_keys == [["dead"], ["key", "c"]]


def test_a_forged_history_does_not_count_in_a_dead_letter():
    forged = chain("q:expired", "q:rejected", "q:expired")
    header = PropertyView(NO_PROPERTIES).with_changes(headers=forged)
    attributes, message = encode_message("ex", "key", header, b"", 0)
    letter = bury(message, attributes)
    assert summary(parts(letter)[2]) == [("q", "expired", 1)]
    again = bury(letter.message, letter.attributes)
    assert summary(parts(again)[2]) == [("q", "expired", 2)]
