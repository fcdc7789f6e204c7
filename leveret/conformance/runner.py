"""Runner: runs cases against one broker, several at a time, each on its own ground."""

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum

from leveret.conformance.case import Case, Need, Profile, Seen, Unavailable, Unmet
from leveret.conformance.ground import Facilities, Ground
from leveret.conformance.raw_client import CaseTimeout

WORKERS = 8


class Outcome(StrEnum):
    """How a case ended, in the eyes of a profile."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The case could not be carried out: nothing is known of the rule."""
    SKIPPED = "skipped"
    """What it needs was not given."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a case came to. `seen` is None unless an expectation was met."""

    case: Case
    seen: Seen | None
    text: str
    """What the broker did, or why that is not known."""
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0
    is_error: bool = False
    is_skipped: bool = False

    def outcome(self, profile: Profile) -> Outcome:
        """Did the broker do what *profile* expects?"""
        if self.is_skipped:
            return Outcome.SKIPPED
        if self.is_error:
            return Outcome.ERROR
        is_met = self.seen is not None and profile in self.seen.met.value
        return Outcome.PASSED if is_met else Outcome.FAILED


def run_case(case: Case, facilities: Facilities) -> Result:
    """Run one case; whatever happens in it is its result."""
    missing = case.needs - facilities.available
    if missing:
        return Result(case, None, f"needs {' and '.join(sorted(missing))}", is_skipped=True)
    begin = time.monotonic()
    ground = Ground(facilities, case.limit_s)
    seen: Seen | None = None
    is_error = False
    try:
        seen = case.run(ground) or Seen(text="as expected")
        text = seen.text
    except Unavailable as lack:
        return Result(case, None, str(lack), is_skipped=True)
    except (Unmet, CaseTimeout, TimeoutError) as failure:
        text = str(failure)
    except OSError as error:
        text, is_error = f"no connection: {error}", True
    except Exception:  # a fault of the case, which must not end the others
        text, is_error = traceback.format_exc(limit=-3), True
    finally:
        ground.close()
    seconds = time.monotonic() - begin
    return Result(case, seen, text, tuple(ground.transcript), seconds, is_error)


def run_cases(
    cases: Sequence[Case], facilities: Facilities, done: Callable[[Result], None]
) -> list[Result]:
    """Run *cases*; *done* hears of each as it ends. Answers the results in the order of the cases.

    Those that restart the broker come last, one by one: they would end the others.
    """
    results: dict[str, Result] = {}

    def note(result: Result) -> None:
        results[result.case.id] = result
        done(result)

    alone = [case for case in cases if Need.RESTART in case.needs]
    together = [case for case in cases if Need.RESTART not in case.needs]
    with ThreadPoolExecutor(WORKERS) as executor:
        try:
            for future in as_completed(
                [executor.submit(run_case, case, facilities) for case in together]
            ):
                note(future.result())
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
    for case in alone:
        note(run_case(case, facilities))
    return [results[case.id] for case in cases]


def is_passed(results: Iterable[Result], profile: Profile) -> bool:
    """Did the broker keep every MUST and MUST NOT of *profile* that was looked at?"""
    return not any(
        result.outcome(profile) in (Outcome.FAILED, Outcome.ERROR)
        for result in results
        if profile in result.case.profiles and result.case.level.startswith("MUST")
    )
