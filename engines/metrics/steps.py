"""Counts an engine's steps for Prometheus: how long they took, and what they computed."""

from typing import Final

from prometheus_client import CollectorRegistry

from engines.scheduling.step import Step, num_drafts
from mesh.metrics.plain import Counter, Histogram

BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class StepMetrics:
    """Every step that was computed, by the kind of work in it."""

    def __init__(self, engine: str, registry: CollectorRegistry) -> None:
        kind = "engine", "kind"
        seconds = Histogram("meshserve_step_seconds", "Time of a computed step", kind, BUCKETS, registry)
        tokens = Counter("meshserve_step_tokens", "Tokens that computed steps took in", kind, registry)
        kinds = "prefill", "decode", "mixed"
        self._of = {one: (seconds.labels(engine, one), tokens.labels(engine, one)) for one in kinds}

    def computed(self, step: Step, now: float) -> None:
        """The step is over."""
        seconds, tokens = self._of[_kind(step)]
        seconds.observe(now - step.started_at)
        tokens.value += sum([share.num_tokens + num_drafts(share) for share in step.shares])


def _kind(step: Step) -> str:
    if not step.prompts:
        return "decode"
    return "prefill" if len(step.prompts) == len(step.shares) else "mixed"
