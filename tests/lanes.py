"""Jobs in the batch lane for tests: a rig, a collector, and a fake provider that speaks to the official SDKs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from factory import broken_invariants, rows, value
from fakes.provider import FakeProvider
from rig import Rig

from engines.llm.client import RoutingClient, build_client
from engines.llm.config import LlmConfig
from models.store import read
from tasks.batches import Collector
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

MODELS = {"openai": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-6", "groq": "groq:openai/gpt-oss-120b"}
S1 = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
HOUR = 3_600.0


class BatchLaneStage:
    """One worker process and one collector of batches, with a provider's batches to steer. Close it."""

    def __init__(
        self, database_url: str, redis_url: str, provider: FakeProvider, wire: str = "openai", **options: Any
    ) -> None:
        config = LlmConfig(
            api_keys={name: f"key-of-{name}" for name in MODELS},
            base_urls={name: provider.anthropic_url if name == "anthropic" else provider.openai_url for name in MODELS},
        )
        client = build_client(config)
        assert isinstance(client, RoutingClient)
        self.provider = provider
        self.model = MODELS[wire]
        self.rig = Rig(database_url, client=client, redis_url=redis_url, **options)
        self.collector = self.another_collector()

    def another_collector(self, **options: Any) -> Collector:
        """One that sends what there is; it asks for a batch once a round, and the rounds are the test's own."""
        assert self.rig.batches is not None
        usual: dict[str, Any] = {"size": 1_000, "wait_seconds": 1e-3, "poll_seconds": HOUR}
        return Collector(
            database=self.rig.database,
            batches=self.rig.batches,
            publisher=self.rig.publisher,  # type: ignore[arg-type]
            meter=self.rig.background.meter,
            **{**usual, **options},
        )

    def close(self) -> None:
        self.rig.close()

    def jeltz(self, prompt: str = "How many?", *, lane: str = "batch", **submission: Any) -> UUID:
        """Submit a job of one question."""
        params = {"prompt": prompt, "schema": S1, "model": self.model, **submission.pop("params", {})}
        return self.submit({"recipe": "jeltz", "params": params, "lane": lane, **submission})

    def submit(self, payload: dict[str, Any]) -> UUID:
        return self.rig.send(prepare(parse_submission(payload), load_settings({}), self.rig.engines))

    def park(self) -> None:
        """Run what is due; calls of the lane are filed."""
        self.rig.drain()

    def collect(self) -> int:
        """One round, with every batch due for a visit."""
        rows(self.rig.database, "UPDATE batches SET next_visit_at = now() WHERE state <> 'ENDED' RETURNING id")
        return self.collector.collect()

    def skip_backoff(self) -> None:
        """Calls that are to be made again after a while are due now; those that wait for a batch go on waiting."""
        rows(
            self.rig.database,
            "UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE status = 'RUNNING' RETURNING id",
        )
        self.rig.publish_due()

    def settle(self, *, rounds: int = 60) -> None:
        """Rounds and turns until every process is closed and nothing of the lane is left."""
        for _ in range(rounds):
            self.rig.drain()
            self.collect()
            self.skip_backoff()
            if self.rig.all_closed() and not self.rig.publisher.turns and not self.requests():
                return
        raise AssertionError(f"not settled: {self.requests()}")

    def requests(self) -> list[tuple[Any, ...]]:
        """``(state, batch)`` of every request that is kept."""
        return rows(self.rig.database, "SELECT state, batch_id FROM batch_requests ORDER BY id")

    def states(self) -> list[str]:
        return [row[0] for row in self.requests()]

    def batches(self) -> list[tuple[Any, ...]]:
        """``(state, outcome, requests)`` of every batch."""
        return rows(self.rig.database, "SELECT state, outcome, requests FROM batches ORDER BY id")

    def end_the_lane(self) -> None:
        """The deadline of every job in the lane passes now."""
        rows(
            self.rig.database,
            "WITH past AS (UPDATE processes SET batch_until = now() - interval '1 ms' WHERE batch_until > now())"
            " UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE status = 'WAITING' AND due_at > now()"
            " RETURNING id",
        )
        self.rig.publish_due()

    def wrapper(self, process: UUID) -> dict[str, Any]:
        found = self.rig.result(process)
        assert found is not None, read.status(self.rig.database, process)
        assert broken_invariants(self.rig.database) == {}
        return found

    def ledger(self, process: UUID) -> list[tuple[str, str | None]]:
        """``(lane, error kind)`` of every call."""
        return [(each["lane"], each["error_kind"]) for each in read.calls(self.rig.database, process)]

    def notes(self, process: UUID) -> list[str | None]:
        """Why the calls of the turns were made in the normal lane."""
        return [each["lane_note"] for each in read.phase_history(self.rig.database, process)]

    def calls_at_once(self) -> int:
        """Calls the provider had outside of batches."""
        paths = ("/v1/chat/completions", "/v1/messages")
        return sum(request.path in paths for request in self.provider.requests)

    def cost(self, process: UUID) -> float:
        found = value(self.rig.database, "SELECT sum(cost_usd) FROM llm_calls WHERE root_id = %(id)s", id=process)
        return float(found)
