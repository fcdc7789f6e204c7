"""The doctor on what power cuts leave: all of it is harmless, and none is left by a repair."""

from pathlib import Path

import pytest

from leveret.storage.log_check import check_log
from leveret.storage.log_repair import repair_log
from leveret.storage.repairs import Repairs
from tests.crash.log_story import OPTIONS, check_recovery
from tests.crash.power_cut import Image
from tests.crash.test_log_crash import each, record_story

KEYS = range(256)
"""Some of the logs are encrypted."""


@pytest.mark.parametrize("seed", [1, 9])
def test_what_a_power_cut_leaves_is_harmless(tmp_path: Path, seed: int) -> None:
    def check(root: Path, image: Image) -> None:
        directory = root / "log"
        if not directory.is_dir():
            return
        found = check_log(directory, OPTIONS, lambda size: None, KEYS)
        assert [str(finding) for finding in found.findings if not finding.is_harmless] == []
        repair_log(found, OPTIONS, Repairs(keep=root / "kept", root=root))
        again = check_log(directory, OPTIONS, lambda size: None, KEYS)
        assert list(map(str, again.findings)) == []
        check_recovery(directory, image.facts, is_journaled=image.is_journaled)

    record = record_story(tmp_path / "first", seed)
    assert each(tmp_path, record, seed, check, stride=2) > 20
