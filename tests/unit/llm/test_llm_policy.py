"""The retry policy: E1, E2, E4, E6, E7, E11, A16, A17, B10. Pure: no clock, no randomness."""

from __future__ import annotations

import json

import pytest

from engines.llm.base import ErrorKind, LlmError, StructuredPath
from engines.llm.policy import (
    FINAL,
    MAX_TOTAL_RETRIES,
    RULES,
    FailureCounts,
    GiveUp,
    RetryIn,
    Step,
    StepDown,
    next_step,
)


def failed(kind: ErrorKind, **more: object) -> LlmError:
    return LlmError(kind, kind.value, **more)  # type: ignore[arg-type]


def run(error: LlmError, limit: int = 100) -> list[Step]:
    """The steps that follow when the same error comes again and again, up to the end or a change of request."""
    counts, steps = FailureCounts(), []
    for _ in range(limit):
        step = next_step(error, counts, jitter=0.5)
        counts = counts.after(error)
        steps.append(step)
        if not isinstance(step, RetryIn):
            break
    return steps


def test_every_kind_has_a_rule() -> None:
    special = {ErrorKind.SCHEMA_REJECTED, ErrorKind.SAMPLING_REJECTED}
    assert set(RULES) | set(FINAL) | special == set(ErrorKind)


@pytest.mark.parametrize("kind", list(RULES))
def test_retries_are_counted_and_end(kind: ErrorKind) -> None:
    steps = run(failed(kind))
    assert len(steps) == RULES[kind].retries + 1
    assert isinstance(steps[-1], GiveUp)


@pytest.mark.parametrize("kind", sorted(FINAL))
def test_hopeless_kinds_are_never_sent_again(kind: ErrorKind) -> None:
    assert isinstance(next_step(failed(kind), FailureCounts(), jitter=0.0), GiveUp)


def test_an_empty_answer_is_retried_at_most_twice() -> None:
    assert [type(step) for step in run(failed(ErrorKind.EMPTY))] == [RetryIn, RetryIn, GiveUp]


def test_waits_grow_to_a_cap() -> None:
    waits = [step.seconds for step in run(failed(ErrorKind.OVERLOADED)) if isinstance(step, RetryIn)]
    assert waits == sorted(waits)
    assert waits[0] == 2.0
    assert waits[-1] == 120.0


def test_a_herd_is_spread_over_more_than_half_of_the_base_delay() -> None:
    for kind in RULES:
        for error in (failed(kind), failed(kind, retry_after=3.0)):
            steps = [next_step(error, FailureCounts(), jitter=i / 20) for i in range(20)]
            waits = [step.seconds for step in steps if isinstance(step, RetryIn)]
            assert len(set(waits)) == 20
            assert max(waits) - min(waits) > 0.5 * RULES[kind].base


def test_retry_after_is_never_undercut() -> None:
    for jitter in (0.0, 0.5, 0.99):
        step = next_step(failed(ErrorKind.RATE_LIMITED, retry_after=3.0), FailureCounts(), jitter=jitter)
        assert isinstance(step, RetryIn)
        assert 3.0 <= step.seconds <= 5.0


def test_retry_after_above_the_backoff_cap_is_honoured() -> None:
    step = next_step(failed(ErrorKind.RATE_LIMITED, retry_after=3600.0), FailureCounts(), jitter=0.0)
    assert step == RetryIn(3600.0)


def test_kinds_taking_turns_still_end() -> None:
    counts, kinds = FailureCounts(), [ErrorKind.OVERLOADED, ErrorKind.RATE_LIMITED, ErrorKind.TRANSPORT]
    for round_number in range(100):
        error = failed(kinds[round_number % 3])
        if isinstance(next_step(error, counts, jitter=0.0), GiveUp):
            break
        counts = counts.after(error)
    assert round_number == MAX_TOTAL_RETRIES


def test_a_rejected_schema_goes_down_rung_by_rung() -> None:
    strict = failed(ErrorKind.SCHEMA_REJECTED, path=StructuredPath.STRICT)
    loose = failed(ErrorKind.SCHEMA_REJECTED, path=StructuredPath.LOOSE)
    prompt = failed(ErrorKind.SCHEMA_REJECTED, path=StructuredPath.PROMPT)
    assert next_step(strict, FailureCounts(), jitter=0.0) == StepDown(path=StructuredPath.LOOSE)
    assert next_step(loose, FailureCounts(), jitter=0.0) == StepDown(path=StructuredPath.PROMPT)
    assert isinstance(next_step(prompt, FailureCounts(), jitter=0.0), GiveUp)
    assert isinstance(next_step(failed(ErrorKind.SCHEMA_REJECTED), FailureCounts(), jitter=0.0), GiveUp)


@pytest.mark.parametrize("kind", [ErrorKind.TIMEOUT, ErrorKind.TRANSPORT])
def test_a_native_path_that_fails_twice_steps_down(kind: ErrorKind) -> None:
    steps = run(failed(kind, path=StructuredPath.STRICT, status=500))
    assert [type(step) for step in steps] == [RetryIn, StepDown]
    assert steps[-1] == StepDown(path=StructuredPath.LOOSE)


def test_each_rung_gets_its_own_two_chances() -> None:
    counts = FailureCounts()
    strict = failed(ErrorKind.TIMEOUT, path=StructuredPath.STRICT)
    loose = failed(ErrorKind.TIMEOUT, path=StructuredPath.LOOSE)
    seen = []
    for error in (strict, strict, loose, loose):
        seen.append(next_step(error, counts, jitter=0.0))
        counts = counts.after(error)
    assert [type(step) for step in seen] == [RetryIn, StepDown, RetryIn, StepDown]
    assert seen[-1] == StepDown(path=StructuredPath.PROMPT)


def test_a_provider_that_turns_us_away_is_no_reason_to_step_down() -> None:
    steps = run(failed(ErrorKind.OVERLOADED, path=StructuredPath.STRICT))
    assert not any(isinstance(step, StepDown) for step in steps)


def test_a_request_that_was_never_sent_is_no_reason_to_step_down() -> None:
    steps = run(failed(ErrorKind.TIMEOUT, path=None))
    assert [type(step) for step in steps] == [RetryIn, RetryIn, RetryIn, GiveUp]


def test_a_refused_parameter_is_left_out_once() -> None:
    error = failed(ErrorKind.SAMPLING_REJECTED, parameter="temperature")
    assert next_step(error, FailureCounts(), jitter=0.0) == StepDown(parameter="temperature")
    assert isinstance(next_step(error, FailureCounts().after(error), jitter=0.0), GiveUp)
    other = failed(ErrorKind.SAMPLING_REJECTED, parameter="top_p")
    assert next_step(other, FailureCounts().after(error), jitter=0.0) == StepDown(parameter="top_p")
    assert isinstance(next_step(failed(ErrorKind.SAMPLING_REJECTED), FailureCounts(), jitter=0.0), GiveUp)


def test_counts_survive_the_database() -> None:
    counts = FailureCounts()
    for error in (
        failed(ErrorKind.TIMEOUT, path=StructuredPath.STRICT),
        failed(ErrorKind.RATE_LIMITED),
        failed(ErrorKind.SAMPLING_REJECTED, parameter="temperature"),
    ):
        counts = counts.after(error)
    again = FailureCounts.from_json(json.loads(json.dumps(counts.to_json())))
    assert again == counts
    assert again.count(ErrorKind.RATE_LIMITED) == 1
    assert FailureCounts.from_json(None) == FailureCounts.from_json({}) == FailureCounts()
