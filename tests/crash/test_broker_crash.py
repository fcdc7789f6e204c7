"""A broker with several queues after each power cut that its writes allow."""

from pathlib import Path

import pytest

from tests.crash.broker_story import BrokerStory, check_world, prepare
from tests.crash.power_cut import Image
from tests.crash.recording import Recording, recording
from tests.crash.test_log_crash import each


def record_story(root: Path, seed: int, steps: int = 60) -> Recording:
    prepare(root)
    with recording(root) as record:
        story = BrokerStory(root, record, seed)
        story.run(steps)
        story.stop()
    return record


@pytest.mark.parametrize("seed", range(3))
def test_no_queue_loses_what_was_confirmed(tmp_path: Path, seed: int) -> None:
    def check(root: Path, image: Image) -> None:
        check_world(root, image.facts, is_journaled=image.is_journaled)

    record = record_story(tmp_path / "first", seed)
    assert each(tmp_path, record, seed, check, samples=1, most_at_once=0, stride=29) > 10
