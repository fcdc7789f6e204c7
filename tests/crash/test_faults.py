"""Faults of the disk and of the clock under a broker of several queues."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.broker.peer import Peer
from tests.broker.test_delays import bind, declare_delayed, delayed
from tests.broker.test_duplicates import count, declare, open_channel
from tests.broker.world import World
from tests.crash.broker_story import contents

FAILING = ("pwritev", "pread", "fdatasync", "open", "ftruncate")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "data").mkdir()
    world = World(tmp_path / "data")
    yield world
    world.close()


class FailingCalls:
    """Makes one function of `os` fail for the files of one queue."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, part: str, number: int) -> None:
        self.number = number
        self.count = 0
        self._part = part
        patch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *others: Any, **named: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)
            if self.number and self._part in path:
                self.count += 1
                raise OSError(self.number, os.strerror(self.number), path)
            return real(file, *others, **named)

        return call


def numbered(peer: Peer, queue: str, *numbers: int) -> None:
    peer.publish(1, queue, *(b"%d|" % number + bytes(200) for number in numbers))


def confirm_select(peer: Peer) -> None:
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)


def acks(peer: Peer) -> int:
    found = [r.method for r in peer.receive() if isinstance(r.method, commands.Basic.Ack)]
    return max((method.delivery_tag or 0 for method in found), default=0)


def make_queues(world: World) -> Peer:
    peer = open_channel(world)
    for name in ("one", "two"):
        declare(peer, name)
        numbered(peer, name, *range(20))
    world.commit()
    return peer


@pytest.mark.parametrize("name", FAILING)
def test_an_error_of_the_disk_ends_the_use_of_one_queue(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing is confirmed that failed, and a restart finds all that was confirmed."""
    make_queues(world).lose()
    world.restart()
    with monkeypatch.context() as patch:
        FailingCalls(patch, name, "/queues/1/", errno.EIO)
        peer = open_channel(world)
        confirm_select(peer)
        numbered(peer, "one", *range(20, 60))  # over the end of a segment
        is_confirmed = acks(peer) > 0
        other = open_channel(world)
        confirm_select(other)
        numbered(other, "two", 20)
        assert acks(other) == 1, "the other queue goes on"
    world.crash()
    found = contents(world)
    assert found["two"] == list(range(21))
    assert found["one"][:20] == list(range(20))
    assert found["one"][20:] == list(range(20, 60))[: len(found["one"]) - 20]
    if is_confirmed:
        assert len(found["one"]) == 60


def test_a_failed_sync_is_not_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = make_queues(world)
    confirm_select(peer)
    with monkeypatch.context() as patch:
        calls = FailingCalls(patch, "fdatasync", "/queues/1/", errno.EIO)
        numbered(peer, "one", 20)
        assert not acks(peer)
        failed = calls.count
        calls.number = 0
        world.commit()
        other = open_channel(world)
        confirm_select(other)
        numbered(other, "one", 21)
        assert not acks(other)
        assert calls.count == failed == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_new_file_lets_publishers_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As with a full table of inodes, which a new segment meets."""
    peer = make_queues(world)
    confirm_select(peer)
    with monkeypatch.context() as patch:
        calls = FailingCalls(patch, "open", "/queues/1/", number)
        numbered(peer, "one", *range(20, 60))
        assert calls.count
        assert not acks(peer)
        calls.number = 0
        world.wait(1000)
        assert acks(peer) == 40
    world.crash()
    assert contents(world)["one"] == list(range(60))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_descriptor_for_a_new_file_costs_no_confirmed_message(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    peer = make_queues(world)
    confirm_select(peer)
    with monkeypatch.context() as patch:
        calls = FailingCalls(patch, "open", "/queues/1/", number)
        numbered(peer, "one", *range(20, 60))
        confirmed = acks(peer)
        assert calls.count
        assert confirmed in (0, 40)
    world.crash()
    assert contents(world)["one"][: 20 + confirmed] == list(range(20 + confirmed))


def test_a_directory_that_is_removed_is_the_end_of_its_queue_alone(world: World) -> None:
    peer = make_queues(world)
    confirm_select(peer)
    (directory,) = world.directory.glob("vhosts/*/queues/1")
    shutil.rmtree(directory)
    numbered(peer, "one", *range(20, 60))
    peer.receive()
    other = open_channel(world)
    confirm_select(other)
    numbered(other, "two", 20)
    assert acks(other) == 1
    world.crash()
    assert contents(world)["two"] == list(range(21))


@pytest.mark.parametrize("jump_ms", [-900_000, -1, 1, 400 * 24 * 3600 * 1000])
def test_a_jump_of_the_clock_costs_nothing(world: World, jump_ms: int) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    for name in ("one", "two", "q"):
        declare(peer, name)
    bind(peer)
    numbered(peer, "one", *range(20))
    delayed(peer, b"0|", 60_000)
    world.commit()
    world.now_ms += jump_ms
    numbered(peer, "one", *range(20, 60))
    delayed(peer, b"1|", 60_000)
    world.wait(0)
    assert count(peer, "one") == 60
    world.crash()
    peer = open_channel(world)
    assert count(peer, "one") == 60
    numbered(peer, "one", 60)
    world.wait(60_001 - min(jump_ms, 0))
    found = contents(world)
    assert found["one"] == list(range(61))
    assert sorted(found["q"]) == [0, 1]


@pytest.mark.parametrize("jump_ms", [-900_000, 400 * 24 * 3600 * 1000])
def test_messages_expire_after_a_jump_of_the_clock(world: World, jump_ms: int) -> None:
    """Those that were there may go early or late, but those that come behind have their time."""
    peer = open_channel(world)
    declare(peer, "one", **{"x-message-ttl": 1000})
    numbered(peer, "one", *range(20))
    world.now_ms += jump_ms
    world.wait(0)
    numbered(peer, "one", *range(20, 40))
    world.wait(500)
    assert (count(peer, "one") or 0) >= 20
    world.wait(1001 - min(jump_ms, 0))
    assert count(peer, "one") == 0
