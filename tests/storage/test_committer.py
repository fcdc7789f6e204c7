"""Committer: who is told when, under each policy, and what an error does."""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from leveret.storage.changes import Change, DeleteQueue
from leveret.storage.committer import MANY_LOGS, CommitBatch, Committer, SyncPolicy, Waiter
from leveret.storage.errors import DiskFull

CHANGE = DeleteQueue(1)


class Job:
    """A sync that the test can make fail (`SyncJob`)."""

    def __init__(self, error: OSError | None = None, handle: int | None = None) -> None:
        self.error = error
        self.handle = handle
        self.has_run = False
        self.is_settled = False
        self.is_closed = False

    def run(self) -> None:
        if self.error is not None:
            raise self.error
        self.has_run = True

    def settle(self) -> None:
        self.is_settled = True

    def close(self) -> None:
        self.is_closed = True


class Log:
    """A log with one job to take (`Syncable`)."""

    def __init__(self, job: Job | OSError | None) -> None:
        self.job = job
        self.included_state: bool | None = None
        self.failure: Exception | None = None

    def take_written(self) -> int:
        return 0

    def take_sync(self, include_state: bool) -> Job | None:
        self.included_state = include_state
        if isinstance(self.job, OSError):
            raise self.job
        job, self.job = self.job, None
        return job

    def fail(self, error: Exception) -> None:
        self.failure = error


class Sink:
    """Definitions that the test can refuse to write (`ChangeSink`)."""

    def __init__(self) -> None:
        self.applied: list[list[Change]] = []
        self.error: Exception | None = None

    def apply(self, changes: Sequence[Change]) -> None:
        if self.error is not None:
            raise self.error
        self.applied.append(list(changes))


class Told:
    """What waiters were told, by name."""

    def __init__(self) -> None:
        self.answers: dict[str, Exception | None] = {}

    def waiter(self, name: str) -> Waiter:
        return lambda error: self.answers.__setitem__(name, error)


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def told() -> Told:
    return Told()


def always(sink: Sink) -> Committer:
    return Committer(SyncPolicy.ALWAYS, sink)


def commit(committer: Committer, *, include_state: bool = False) -> CommitBatch:
    batch = committer.take(include_state=include_state)
    batch.run()
    batch.close()
    batch.settle()
    return batch


def test_nobody_is_told_before_the_sync(sink: Sink, told: Told) -> None:
    committer = always(sink)
    job = Job()
    committer.touch(Log(job))
    committer.wait(told.waiter("confirm"))
    assert committer.take_due() == []
    assert committer.is_waited_for
    batch = committer.take()
    assert not committer.is_waited_for
    batch.run()
    batch.close()
    assert job.has_run
    assert told.answers == {}
    batch.settle()
    assert told.answers == {"confirm": None}


def test_one_sync_serves_all_who_came_while_the_last_one_ran(sink: Sink, told: Told) -> None:
    committer = always(sink)
    under_way = committer.take()
    log = Log(Job())
    for name in ("a", "b", "c"):
        committer.touch(log)
        committer.wait(told.waiter(name))
    under_way.run()
    under_way.close()
    under_way.settle()
    assert told.answers == {}
    commit(committer)
    assert told.answers == dict.fromkeys(("a", "b", "c"))


@pytest.mark.parametrize("policy", [SyncPolicy.INTERVAL, SyncPolicy.NEVER])
def test_other_policies_do_not_wait(sink: Sink, told: Told, policy: SyncPolicy) -> None:
    committer = Committer(policy, sink)
    committer.touch(Log(Job()))
    committer.wait(told.waiter("confirm"))
    for waiter in committer.take_due():
        waiter(None)
    assert told.answers == {"confirm": None}
    assert committer.take_due() == []
    assert not committer.is_waited_for


@pytest.mark.parametrize(
    ("policy", "is_synced"), [("always", True), ("interval", True), ("never", False)]
)
def test_files_are_given_back_and_only_never_leaves_them_unsynced(
    sink: Sink, policy: str, is_synced: bool
) -> None:
    committer = Committer(SyncPolicy(policy), sink)
    job = Job()
    committer.touch(Log(job))
    commit(committer)
    assert (job.has_run, job.is_closed) == (is_synced, True)


def test_states_wait_for_the_sync_of_everything(sink: Sink) -> None:
    committer = always(sink)
    log = Log(Job())
    committer.touch_state(log)
    commit(committer)
    assert log.included_state is None
    commit(committer, include_state=True)
    assert log.included_state is True
    log.included_state = None
    commit(committer, include_state=True)
    assert log.included_state is None


def test_one_failed_log_fails_the_whole_batch(sink: Sink, told: Told) -> None:
    committer = always(sink)
    error = OSError(5, "Input/output error")
    failing, sound = Log(Job(error)), Log(Job())
    committer.touch(failing)
    committer.touch(sound)
    for name in ("a", "b"):
        committer.wait(told.waiter(name))
    batch = committer.take()
    batch.run()
    batch.close()
    assert batch.settle() == [error]
    assert told.answers == {"a": error, "b": error}
    assert (failing.failure, sound.failure) == (error, None)
    committer.wait(told.waiter("next"))
    commit(committer)
    assert told.answers["next"] is None


def commit_many(committer: Committer, told: Told, jobs: list[Job]) -> list[Log]:
    """Commit a batch of a log for each of *jobs*, with "everybody" as the waiter."""
    logs = [Log(job) for job in jobs]
    for log in logs:
        committer.touch(log)
    committer.wait(told.waiter("everybody"))
    batch = committer.take()
    batch.run()
    batch.close()
    batch.settle()
    return logs


@pytest.mark.skipif(sys.maxsize == MANY_LOGS, reason="this kernel's syncfs hides errors")
def test_many_logs_are_synced_by_one_call(sink: Sink, told: Told, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    jobs = [Job(handle=descriptor) for _ in range(MANY_LOGS)]
    commit_many(always(sink), told, jobs)
    os.close(descriptor)
    assert told.answers == {"everybody": None}
    assert not any(job.has_run for job in jobs)
    assert all(job.is_settled and job.is_closed for job in jobs)


@pytest.mark.skipif(sys.maxsize == MANY_LOGS, reason="this kernel's syncfs hides errors")
def test_each_log_is_synced_if_all_together_cannot_be(sink: Sink, told: Told) -> None:
    error = OSError(errno.EIO, "bad disk")
    no_descriptor = 1 << 30
    jobs = [Job(error if i == 3 else None, no_descriptor) for i in range(MANY_LOGS)]
    logs = commit_many(always(sink), told, jobs)
    assert told.answers == {"everybody": error}
    assert [log.failure for log in logs if log.failure] == [error]
    assert logs[3].failure is error
    assert sum(job.has_run for job in jobs) == MANY_LOGS - 1
    assert all(job.is_closed for job in jobs)


def test_a_log_fails_before_its_waiters_are_told(sink: Sink) -> None:
    """What they do then, the queue of that log must not take part in."""
    committer = always(sink)
    log = Log(Job(OSError()))
    committer.touch(log)
    seen: list[Exception | None] = []
    committer.wait(lambda _error: seen.append(log.failure))
    commit(committer)
    assert isinstance(seen[0], OSError)


def test_a_log_that_cannot_be_taken_fails_like_one_that_cannot_be_synced(
    sink: Sink, told: Told
) -> None:
    committer = always(sink)
    error = OSError(24, "Too many open files")
    log = Log(error)
    committer.touch(log)
    committer.wait(told.waiter("confirm"))
    commit(committer)
    assert told.answers == {"confirm": error}
    assert log.failure is error


@pytest.mark.parametrize("policy", list(SyncPolicy))
def test_definitions_are_durable_under_any_policy(
    sink: Sink, told: Told, policy: SyncPolicy
) -> None:
    committer = Committer(policy, sink)
    committer.change(CHANGE)
    committer.wait_for_changes(told.waiter("declare"))
    assert committer.is_waited_for
    assert committer.take_due() == []
    commit(committer)
    assert sink.applied == [[CHANGE]]
    assert told.answers == {"declare": None}


def test_a_change_without_a_waiter_is_written_too(sink: Sink) -> None:
    committer = always(sink)
    committer.change(CHANGE)
    assert committer.is_waited_for
    commit(committer)
    assert sink.applied == [[CHANGE]]


@pytest.mark.parametrize("policy", list(SyncPolicy))
def test_a_confirm_waits_for_the_definitions_before_it(
    sink: Sink, told: Told, policy: SyncPolicy
) -> None:
    committer = Committer(policy, sink)
    committer.change(CHANGE)
    committer.wait(told.waiter("noted"))
    assert committer.take_due() == []
    batch = committer.take()
    committer.wait(told.waiter("being written"))
    assert committer.take_due() == []
    batch.run()
    batch.close()
    batch.settle()
    assert told.answers == {"noted": None}
    commit(committer)
    assert told.answers == {"noted": None, "being written": None}


def test_refused_definitions_are_tried_again_in_their_order(sink: Sink, told: Told) -> None:
    committer = Committer(SyncPolicy.NEVER, sink)
    sink.error = RuntimeError("disk full")
    committer.change(DeleteQueue(1))
    committer.wait_for_changes(told.waiter("declare"))
    commit(committer)
    assert told.answers == {"declare": sink.error}
    assert not committer.is_waited_for, "trying without an end would keep the disk busy"
    committer.change(DeleteQueue(2))
    committer.wait(told.waiter("confirm"))
    commit(committer)
    assert told.answers["confirm"] is sink.error
    sink.error = None
    committer.wait(told.waiter("again"))
    assert committer.take_due() == []
    commit(committer)
    assert sink.applied == [[DeleteQueue(1), DeleteQueue(2)]]
    assert told.answers["again"] is None
    committer.wait(told.waiter("free"))
    assert len(committer.take_due()) == 1


def test_all_wait_for_definitions_that_find_no_room(sink: Sink, told: Told) -> None:
    committer = always(sink)
    sink.error = DiskFull("no room")
    committer.change(DeleteQueue(1))
    committer.wait_for_changes(told.waiter("declare"))
    committer.wait(told.waiter("confirm"))
    commit(committer)
    assert not committer.is_waited_for, "trying without an end would keep the disk busy"
    commit(committer)
    assert told.answers == {}
    sink.error = None
    committer.change(DeleteQueue(2))
    committer.wait_for_changes(told.waiter("later"))
    commit(committer)
    assert sink.applied == [[DeleteQueue(1), DeleteQueue(2)]]
    assert told.answers == {"declare": None, "confirm": None, "later": None}
    assert list(told.answers) == ["declare", "confirm", "later"]


def test_who_waits_for_room_hears_of_a_log_that_failed(sink: Sink, told: Told) -> None:
    committer = always(sink)
    sink.error = DiskFull("no room")
    committer.change(CHANGE)
    committer.wait_for_changes(told.waiter("declare"))
    commit(committer)
    error = OSError("torn")
    committer.touch(Log(Job(error)))
    committer.wait(told.waiter("confirm"))
    commit(committer)
    assert told.answers == {"declare": error, "confirm": error}


def test_a_policy_does_not_need_the_database() -> None:
    """The command line reads policies; `leveret --help` has no use for sqlite."""
    import subprocess
    import sys

    script = "import sys, leveret.storage.committer; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
