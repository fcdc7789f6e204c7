"""Queues against what their clients were promised, with restarts and power cuts as steps."""

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.crash.broker_story import BrokerStory, Facts, check_world, prepare
from tests.crash.power_cut import random_image
from tests.crash.recording import recording

seeds = st.integers(0, 1 << 16)


class QueueModel(RuleBasedStateMachine):
    """The steps are those of `BrokerStory`, which notes what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.lives = 0
        self.stack = ExitStack()
        prepare(self.top / "0")
        self.start(Facts(), 0)

    def start(self, facts: Facts, seed: int) -> None:
        root = self.top / str(self.lives)
        self.recording = self.stack.enter_context(recording(root))
        self.story = BrokerStory(root, self.recording, seed, facts.after_restart())

    def end(self) -> None:
        self.story.stop()
        self.stack.close()

    def teardown(self) -> None:
        self.end()
        check_world(self.recording.root, self.story.facts, is_journaled=True)
        shutil.rmtree(self.top)

    @rule(seed=seeds, steps=st.integers(1, 8))
    def act(self, seed: int, steps: int) -> None:
        self.story.choice = random.Random(seed)
        self.story.run(steps)

    @rule()
    def commit(self) -> None:
        self.story.commit()

    @rule(seed=seeds)
    def restart(self, seed: int) -> None:
        self.story.commit()
        self.end()
        self.start(self.story.facts, seed)

    @rule(seed=seeds)
    def lose_power(self, seed: int) -> None:
        """At any moment since the last start."""
        self.end()
        image = random_image(self.recording, random.Random(seed))
        shutil.rmtree(self.recording.root)
        self.lives += 1
        root = image.restore(self.top / str(self.lives))
        look = shutil.copytree(root, self.top / "look")
        check_world(look, image.facts, is_journaled=True)
        shutil.rmtree(look)
        self.start(image.facts, seed)


QueueModel.TestCase.settings = settings(
    max_examples=settings().max_examples if settings().max_examples > 100 else 10,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestQueueModel = QueueModel.TestCase
