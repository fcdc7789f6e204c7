"""Random conversations: the broker serves the next client as before, and grows no larger.

`make fuzz` goes on with them for hours.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import Phase, given, note, seed, settings
from hypothesis import strategies as st
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.wire.grammar import conversations, pieces_of, spoilt
from tests.wire.raw import PROTOCOL_HEADER, Peer
from tests.wire.recording import record

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("FUZZ_SEED", "0"))
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
PHASES = [Phase.generate, Phase.shrink] if SECONDS else [Phase.generate]
"""Looking for a shorter conversation that fails takes minutes: the broker starts for each."""
ROUND = 250
"""Conversations between two looks at the clock."""
MEMORY_SLACK = 48 << 20
"""Bytes by which the broker may grow: fragments, caches that fill up."""


class Target:
    """A broker under fire, and a client of it that nothing may harm."""

    def __init__(self, server: BrokerProcess) -> None:
        self._server = server
        self._bystander = Peer(server.port).open()
        self._is_well = True
        self.sessions = [pieces_of(stream) for stream in record(server.port)]

    def close(self) -> None:
        self._bystander.close()

    def withstand(self, pieces: list[bytes], *, in_one: bool, leaves: bool) -> None:
        """Hold a conversation; fails unless the broker serves others as before."""
        if not self._is_well:
            self._heal()
        log_size = self._server.log_path.stat().st_size
        self._is_well = False
        talk(self._server.port, pieces, in_one=in_one, leaves=leaves)
        self._bystander.check()
        with self._server.log_path.open() as log:
            log.seek(log_size)
            assert "Traceback" not in (said := log.read()), said
        self._is_well = True

    def _heal(self) -> None:
        """A broker for the next conversation, with which Hypothesis looks for a shorter one."""
        self._bystander.socket.close()
        self._server.kill()
        self._server.start()
        self._bystander = Peer(self._server.port).open()

    def resident_bytes(self) -> int:
        """Memory of the broker, when what conversations left in it is gone."""
        peer = Peer(self._server.port).open(1)
        for name in ("fuzz-a", "fuzz-b"):
            peer.call(1, commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)
        peer.close()
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10


def talk(port: int, pieces: list[bytes], *, in_one: bool, leaves: bool) -> None:
    """Send it all, read for a moment unless one leaves at once, and hang up."""
    peer = Peer(port)
    # It may be closed for what it sends, and there may be nothing to read.
    with closing(peer.socket), suppress(ConnectionError, TimeoutError):
        for piece in [b"".join(pieces)] if in_one else pieces:
            peer.send(piece)
        peer.socket.settimeout(0.01)
        while not leaves and peer.socket.recv(262144):
            continue


class Conversation(list[bytes]):
    """Pieces to send; they are shown in octets, many zeros in a row as their number."""

    def __repr__(self) -> str:
        zeros = re.compile(r"(?:00){33,}")
        words = (zeros.sub(lambda run: f"[{len(run[0]) // 2} x 00]", each.hex()) for each in self)
        return " ".join(words)


def hold(target: Target, pieces: st.SearchStrategy[list[bytes]], number: int, count: int) -> None:
    """Hold *count* conversations, of which *number* says which they are."""

    @seed(number)
    @settings(max_examples=count, database=None, phases=PHASES, report_multiple_bugs=False)
    @given(pieces=pieces.map(Conversation), in_one=st.booleans(), leaves=st.booleans())
    def withstand(pieces: Conversation, in_one: bool, leaves: bool) -> None:
        note(f"seed {number}")
        target.withstand(pieces, in_one=in_one, leaves=leaves)

    withstand()


@pytest.fixture(scope="module")
def target(server: BrokerProcess) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


def hold_for_a_while(target: Target, pieces: st.SearchStrategy[list[bytes]]) -> None:
    """Hold conversations, other ones each time, until the time is over; at least a round."""
    end = time.monotonic() + SECONDS / 2
    number = SEED
    while number == SEED or time.monotonic() < end:
        hold(target, pieces, number, ROUND)
        number += 1


def test_conversations(target: Target) -> None:
    hold_for_a_while(target, conversations)


def test_spoilt_sessions(target: Target) -> None:
    assert {session[0] for session in target.sessions} == {PROTOCOL_HEADER}
    hold_for_a_while(target, spoilt(target.sessions))


def test_memory_returns(target: Target) -> None:
    hold(target, conversations, 1, 50)
    before = target.resident_bytes()
    hold(target, conversations, 2, 100)
    hold(target, spoilt(target.sessions), 2, 50)
    assert target.resident_bytes() < before + MEMORY_SLACK
