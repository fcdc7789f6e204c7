"""MessageIds: what it covers it finds, like a dict; its budget holds."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from leveret.amqp.message import encode_message
from leveret.queues.message_ids import (
    ENTRY_BYTES,
    FILE_NAME,
    RUN_BYTES,
    RUN_IDS,
    IdBudget,
    MessageIds,
    read_ids,
)


def message(message_id: str | None) -> tuple[int, bytes]:
    properties = commands.Basic.Properties(message_id=message_id, expiration="5")
    payload = header.ContentHeader(0, 1, properties).marshal()
    return encode_message("e", "key", payload, b"x", 0)


def messages(ids: list[str | None]) -> list[bytes]:
    return [message(message_id)[1] for message_id in ids]


ATTRIBUTES = message(None)[0]
IDS = st.sampled_from([None, "a", "b", "plumless", "buckeroo"])  # the last two collide


@given(st.lists(st.lists(IDS, min_size=1, max_size=5), max_size=12), st.data())
def test_what_is_covered_is_found_as_in_a_dict(pages: list[list[str | None]], data) -> None:
    index = MessageIds(IdBudget(1 << 20))
    places: dict[int, str | None] = {}
    starts = []
    for page in pages:
        starts.append(len(places))
        places.update(enumerate(page, len(places)))
    for at in data.draw(st.permutations(range(len(pages)))):
        index.add(starts[at], messages(pages[at]), ATTRIBUTES)
    assert index.covered(0) == len(places)
    start = data.draw(st.integers(0, len(places)))
    stop = data.draw(st.integers(start, len(places)))
    for wanted in ("a", "b", "c", "plumless", "buckeroo"):
        expected = [at for at, found in places.items() if found == wanted and start <= at < stop]
        candidates = index.find(wanted.encode(), start, stop)
        assert candidates == sorted(candidates)
        assert [at for at in candidates if places[at] == wanted] == expected


def test_gaps_between_what_is_covered_are_known() -> None:
    index = MessageIds(IdBudget(1 << 20))
    index.add(10, messages(["a"] * 5), ATTRIBUTES)
    index.add(20, messages(["b"] * 5), ATTRIBUTES)
    assert [index.covered(at) for at in (9, 10, 14, 15, 20)] == [9, 15, 15, 15, 25]
    assert [index.uncovered(at, 30) for at in (0, 15, 25)] == [10, 20, 30]
    index.forget_before(15)
    assert index.covered(10) == 10
    assert index.find(b"b", 0, 22) == [20, 21]


def test_the_oldest_runs_give_way_to_new_messages_and_nothing_to_old_ones() -> None:
    budget = IdBudget(2 * RUN_BYTES + ENTRY_BYTES * (RUN_IDS + 10))
    old, new = MessageIds(budget), MessageIds(budget)
    full = messages(["x"]) * RUN_IDS
    old.add(0, full, ATTRIBUTES)
    new.add(0, messages(["y"] * 10), ATTRIBUTES)
    assert not budget.has_room(1)
    new.add_page(100, messages(["z"]), ATTRIBUTES)
    assert (old.covered(0), new.covered(0), new.covered(100)) == (RUN_IDS, 10, 100)
    new.add(10, messages(["y"]), ATTRIBUTES)
    assert (old.covered(0), new.covered(0)) == (0, 11)
    assert budget.used == RUN_BYTES + ENTRY_BYTES * 11
    new.clear()
    assert budget.used == 0


def test_a_full_run_is_searched_and_followed_by_another() -> None:
    index = MessageIds(IdBudget(1 << 20))
    ids: list[str | None] = [f"id{number % 5000}" for number in range(2 * RUN_IDS + 100)]
    index.add(7, messages(ids), ATTRIBUTES)
    expected = [7 + at for at, found in enumerate(ids) if found == "id123"]
    assert index.find(b"id123", 0, 1 << 40) == expected


def test_without_room_nothing_is_kept() -> None:
    budget = IdBudget(0)
    index = MessageIds(budget)
    index.add(0, messages(["a"]), ATTRIBUTES)
    assert (index.find(b"a", 0, 9), budget.used) == ([], 0)


def saved(directory: Path) -> MessageIds:
    """An index of three runs, saved in *directory*."""
    index = MessageIds(IdBudget(1 << 20))
    index.add(0, messages([f"id{number % 7}" for number in range(RUN_IDS + 3)]), ATTRIBUTES)
    index.add(1 << 40, messages([None, "a"]), ATTRIBUTES)
    index.save(directory)
    return index


def test_what_was_saved_is_covered_again_and_goes_on(tmp_path: Path) -> None:
    before = saved(tmp_path)
    budget = IdBudget(1 << 20)
    after = MessageIds(budget)
    after.load(tmp_path)
    after.add(RUN_IDS + 3, messages(["id6"]), ATTRIBUTES)
    before.add(RUN_IDS + 3, messages(["id6"]), ATTRIBUTES)
    for wanted in (b"id0", b"id6", b"a", b"b"):
        assert after.find(wanted, 0, 1 << 41) == before.find(wanted, 0, 1 << 41)
    assert after.covered(0) == RUN_IDS + 4
    after.clear()
    assert budget.used == 0


def test_no_more_is_loaded_than_there_is_room_for(tmp_path: Path) -> None:
    saved(tmp_path)
    budget = IdBudget(RUN_BYTES * 3)
    index = MessageIds(budget)
    index.load(tmp_path)
    assert budget.used <= RUN_BYTES * 3
    assert index.covered(0) == 0


@given(data=st.data())
def test_a_damaged_file_covers_nothing(tmp_path_factory, data) -> None:
    directory = tmp_path_factory.mktemp("ids")
    index = MessageIds(IdBudget(1 << 20))
    index.add(3, messages(["a", None, "b"]), ATTRIBUTES)
    index.save(directory)
    path = directory / FILE_NAME
    good = path.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    mutation = data.draw(st.sampled_from(["flip", "cut", "longer"]))
    flipped = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    path.write_bytes({"flip": flipped, "cut": good[:at], "longer": good + good[at:]}[mutation])
    assert (mutation == "flip" and at in (4, 5)) or read_ids(path) == []


def test_without_a_file_nothing_is_covered(tmp_path: Path) -> None:
    assert read_ids(tmp_path / FILE_NAME) == []
