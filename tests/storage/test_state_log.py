from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.state_log import ENTRY_SIZE, Entry, State, decode_entries, encode_entries

U32 = st.integers(0, 2**32 - 1)
ENTRIES = st.lists(st.tuples(U32, U32, st.sampled_from(State)))


@given(ENTRIES, st.binary(max_size=ENTRY_SIZE - 1))
def test_whole_entries_come_back(entries: list[Entry], torn: bytes) -> None:
    assert decode_entries(encode_entries(entries) + torn) == entries


def test_an_entry_with_a_flipped_bit_is_left_out() -> None:
    data = encode_entries([(1, 2, State.ACKED), (3, 4, State.DELIVERED), (5, 6, State.VOLATILE)])
    for bit in range(ENTRY_SIZE * 8):
        damaged = bytearray(data)
        damaged[ENTRY_SIZE + bit // 8] ^= 1 << bit % 8
        assert decode_entries(bytes(damaged)) == [(1, 2, State.ACKED), (5, 6, State.VOLATILE)]
