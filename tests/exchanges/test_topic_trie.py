"""Topic trie: by examples, and against a model that follows the definition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.exchanges.topic_trie import TopicTrie

WORDS = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), max_size=6).map(".".join)
BINDINGS = st.tuples(PATTERNS, st.integers(0, 3))


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def matches(pattern: list[str], words: list[str]) -> bool:
    """The model."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(matches(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and matches(rest, words[1:])


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a", "."]),
        ("a", ["a"], ["", "b", "a.a", "a."]),
        ("*", ["a", "*", "#"], ["", "a.b", "."]),
        ("#", ["", "a", "a.b", "...", "#"], []),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b", "b.a", "ab"]),
        ("#.a", ["a", "b.a", "a.a.a"], ["", "a.b"]),
        ("a.#.b", ["a.b", "a.c.b", "a.b.b", "a.c.d.b"], ["a", "b", "a.b.c"]),
        ("*.#", ["a", "a.b", "."], [""]),
        ("#.*", ["a", "a.b", "."], [""]),
        ("#.#", ["", "a", "a.b"], []),
        ("#.a.#.b.#", ["a.b", "x.a.y.b.z"], ["b.a", "a", ""]),
        ("*.a.*", ["x.a.y"], ["a", "x.a", "x.b.y"]),
        ("a..b", ["a..b"], ["a.b", "a...b"]),
        (".", ["."], ["", "a.", ".."]),
        ("*.*", ["."], ["", "a"]),
    ],
)
def test_pattern(pattern, matching, others):
    trie = TopicTrie[str]()
    trie.add(pattern, "q")
    for key in matching:
        assert list(trie.match(key)) == ["q"], key
    for key in others:
        assert list(trie.match(key)) == [], key
    trie.remove(pattern, "q")
    for key in matching + others:
        assert list(trie.match(key)) == [], key
    assert not trie


def test_a_destination_of_several_matching_patterns_comes_once():
    trie = TopicTrie[str]()
    for pattern in ("#", "a.#", "a.*", "a.b", "#.b", "*.b", "a.#.b"):
        trie.add(pattern, "q")
    trie.add("a.b", "p")
    assert sorted(trie.match("a.b")) == ["p", "q"]


def test_a_pattern_added_twice_stays_until_it_is_removed_twice():
    trie = TopicTrie[str]()
    trie.add("a.#", "q")
    trie.add("a.#", "q")
    trie.remove("a.#", "q")
    assert list(trie.match("a.b")) == ["q"]
    trie.remove("a.#", "q")
    assert list(trie.match("a.b")) == []


def test_many_hashes_and_a_long_key_end_soon():
    trie = TopicTrie[str]()
    trie.add(".".join(["#", "a"] * 20 + ["b"]), "q")
    assert list(trie.match(".".join(["a"] * 120))) == []
    assert list(trie.match(".".join(["a"] * 119 + ["b"]))) == ["q"]


@given(
    added=st.lists(BINDINGS, max_size=25),
    order=st.randoms(use_true_random=False),
    keys=st.lists(WORDS, min_size=1, max_size=10),
)
def test_agrees_with_the_model_while_patterns_come_and_go(added, order, keys):
    trie = TopicTrie[int]()
    present: Counter[tuple[str, int]] = Counter()

    def check() -> None:
        for key in keys:
            expected = {d for p, d in present if matches(split(p), split(key))}
            found = list(trie.match(key))
            assert len(found) == len(set(found))
            assert set(found) == expected, key

    for pattern, destination in added:
        trie.add(pattern, destination)
        present[pattern, destination] += 1
    check()
    order.shuffle(added)
    for pattern, destination in added:
        trie.remove(pattern, destination)
        present -= Counter([(pattern, destination)])
        check()
    assert not trie
