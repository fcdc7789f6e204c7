"""Rendezvous hashing: shares by weight, and nothing moves that need not."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.exchanges.rendezvous import RendezvousHash, stable_hash

KEYS = [str(number).encode() for number in range(2000)]
WEIGHTS = st.dictionaries(st.text(max_size=8), st.integers(1, 1000), max_size=8)


def hash_of(weights: dict[str, int]) -> RendezvousHash[str]:
    hashing = RendezvousHash[str]()
    for name, weight in weights.items():
        hashing.add(name, name, weight)
    return hashing


def owners(hashing: RendezvousHash[str]) -> dict[bytes, str | None]:
    return {key: hashing.owner(key) for key in KEYS}


def chi_squared(counts: Counter[str | None], weights: dict[str, int]) -> float:
    """Sum of squared deviations from the shares by weight, each over its expectation."""
    whole, total = sum(weights.values()), counts.total()
    return sum(
        (counts[name] - total * weight / whole) ** 2 / (total * weight / whole)
        for name, weight in weights.items()
    )


def test_no_node():
    assert RendezvousHash[str]().owner(b"k") is None


def test_the_hash_is_the_same_everywhere():
    assert stable_hash(b"") == 0xE4A6A0577479B2B4
    assert [hash_of({"a": 1, "b": 2, "c": 3}).owner(key) for key in KEYS[:12]] == list(
        "bbbbccccacba"
    )


def test_shares_follow_the_weights():
    for count in (2, 5, 20):
        # The bounds are exceeded by chance with one in 1000 choices of the names.
        weights = {f"queue {number}": 1 + number % 4 for number in range(count)}
        counts = Counter(owners(hash_of(weights)).values())
        assert chi_squared(counts, weights) < {2: 10.9, 5: 18.5, 20: 43.9}[count]


def test_a_heavy_node_gets_its_share():
    weights = {"light": 1, "heavy": 1_000_000_000}
    assert Counter(owners(hash_of(weights)).values()) == {"heavy": len(KEYS)}


def test_the_keys_of_a_node_that_goes_are_spread_by_weight():
    weights = {"a": 1, "b": 2, "c": 5, "gone": 4}
    hashing = hash_of(weights)
    orphans = [key for key, owner in owners(hashing).items() if owner == "gone"]
    hashing.remove("gone", 4)
    del weights["gone"]
    counts = Counter(hashing.owner(key) for key in orphans)
    assert chi_squared(counts, weights) < 13.9


@settings(max_examples=25)
@given(weights=WEIGHTS, name=st.text(max_size=8), weight=st.integers(1, 1000))
def test_only_keys_of_the_node_that_comes_or_goes_move(weights, name, weight):
    hashing = hash_of(weights)
    before = owners(hashing)
    hashing.add(name, name, weight)
    for key, owner in owners(hashing).items():
        assert owner in (name, before[key])
    hashing.remove(name, weight)
    assert owners(hashing) == before


@settings(max_examples=25)
@given(weights=WEIGHTS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_count(weights, order):
    names = list(weights)
    order.shuffle(names)
    assert owners(hash_of(weights)) == owners(hash_of({name: weights[name] for name in names}))
