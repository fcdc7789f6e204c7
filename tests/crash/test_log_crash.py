"""A log after each power cut that its writes allow."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.log_story import LogStory, check_recovery
from tests.crash.power_cut import Image, images
from tests.crash.recording import Recording, recording


def record_story(root: Path, seed: int, steps: int = 40) -> Recording:
    root.mkdir(exist_ok=True)
    with recording(root) as record:
        story = LogStory(root / "log", record, seed)
        story.run(steps)
        story.stop()
    return record


def record_second_life(root: Path, image: Image, seed: int) -> Recording:
    """Recover *image* in *root*, go on, and get something confirmed."""
    with recording(root) as record:
        story = LogStory(root / "log", record, seed, image.facts)
        story.confirm_all()
        story.ack()
        story.stop()
    return record


def each(
    root: Path, record: Recording, seed: int, check: Callable[[Path, Image], None], **options: int
) -> int:
    """Call *check* for each image of *record*; answers how many there were."""
    count = 0
    for image in images(record, seed, **options):
        count += 1
        copy = image.restore(root / "image")
        try:
            check(copy, image)
        except Exception as error:
            error.add_note(f"seed {seed}, {image.name}")
            raise
        shutil.rmtree(copy)
    return count


@pytest.mark.parametrize("seed", range(6))
def test_what_was_confirmed_is_there_after_each_power_cut(tmp_path: Path, seed: int) -> None:
    def check(root: Path, image: Image) -> None:
        check_recovery(root / "log", image.facts, is_journaled=image.is_journaled)

    record = record_story(tmp_path / "first", seed)
    assert each(tmp_path, record, seed, check) > 20


@pytest.mark.parametrize("seed", range(8, 11))
def test_a_second_power_cut_takes_no_more(tmp_path: Path, seed: int) -> None:
    """Recovery itself writes, and must not rely on what it has not synced."""

    def check(root: Path, image: Image) -> None:
        if not image.is_journaled:
            return
        record = record_second_life(root, image, seed)
        each(tmp_path / "second", record, seed, check_again, samples=1, most_at_once=0, stride=6)

    def check_again(root: Path, image: Image) -> None:
        check_recovery(root / "log", image.facts, is_journaled=image.is_journaled)

    record = record_story(tmp_path / "first", seed, steps=20)
    assert each(tmp_path, record, seed, check, samples=2, most_at_once=0, stride=5) > 2
