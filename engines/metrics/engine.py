"""Offers Prometheus what an engine says of itself in its statuses: under vLLM's names where they mean the same."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.wire.control import Role
from mesh.wire.status import EngineStatus

Family = GaugeMetricFamily | CounterMetricFamily
SERVICE = ("model_name", "engine")
ENGINE = ("engine",)


class EngineNumbers(Collector):
    """The last status that was published: a heartbeat old at most."""

    def __init__(self, engine: str, status: Callable[[], EngineStatus | None]) -> None:
        self._engine = engine
        self._status = status

    def collect(self) -> Iterator[Family]:
        """Return nothing before there is a status."""
        status = self._status()
        if status is not None:
            yield from self._of_services(status)
            yield from self._of_drafts(status)
            yield from self._of_requests(status)
            yield from self._of_moves(status)
            yield from self._of_tiers(status)

    def _of_services(self, status: EngineStatus) -> Iterable[Family]:
        running = GaugeMetricFamily("vllm:num_requests_running", "Requests that hold KV blocks", labels=SERVICE)
        waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests that were not begun here", labels=SERVICE)
        kv_usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "KV blocks in use, 1 is all", labels=SERVICE)
        gpu_usage = GaugeMetricFamily("vllm:gpu_cache_usage_perc", "The same under its older name", labels=SERVICE)
        step_error = GaugeMetricFamily(
            "meshserve_step_prediction_error",
            "Of the engine's predictions of its recent steps: 90th percentile of |measured / predicted - 1|",
            labels=(*SERVICE, "step"),
        )
        for service in status.services:
            labels = service.name, self._engine
            running.add_metric(labels, service.num_running)
            waiting.add_metric(labels, service.num_waiting)
            used = 1.0 - service.num_free_blocks / service.num_blocks if service.num_blocks else 0.0
            kv_usage.add_metric(labels, used)
            gpu_usage.add_metric(labels, used)
            for step, error in (("prefill", service.prefill_error), ("decode", service.decode_error)):
                if error is not None:
                    step_error.add_metric((*labels, step), error)
        return running, waiting, kv_usage, gpu_usage, step_error

    def _of_drafts(self, status: EngineStatus) -> Iterable[Family]:
        checks = CounterMetricFamily("vllm:spec_decode_num_drafts", "Decodes that had drafts", labels=SERVICE)
        drafted = CounterMetricFamily("vllm:spec_decode_num_draft_tokens", "Tokens that were drafted", labels=SERVICE)
        accepted = CounterMetricFamily("vllm:spec_decode_num_accepted_tokens", "Drafts that were right", labels=SERVICE)
        for service in status.services:
            labels = service.name, self._engine
            checks.add_metric(labels, service.drafts_checked)
            drafted.add_metric(labels, service.tokens_drafted)
            accepted.add_metric(labels, service.drafts_accepted)
        return checks, drafted, accepted

    def _of_requests(self, status: EngineStatus) -> Iterable[Family]:
        role = GaugeMetricFamily("meshserve_engine_role", "1: the engine has it", labels=(*ENGINE, "role"))
        for one in Role:
            role.add_metric((self._engine, one), status.role is one)
        preempted = CounterMetricFamily("vllm:num_preemptions", "Requests that lost their KV to others", labels=SERVICE)
        preempted.add_metric((self._services(status), self._engine), status.preemptions_total)
        tokens = GaugeMetricFamily("meshserve_context_tokens", "Tokens of all requests held", labels=ENGINE)
        tokens.add_metric((self._engine,), status.num_tokens)
        backlog = GaugeMetricFamily(
            "meshserve_prefill_backlog_seconds", "Predicted, of the prefills that run and wait", labels=ENGINE
        )
        backlog.add_metric((self._engine,), status.prefill_remaining_s + status.prefill_waiting_s)
        slack = GaugeMetricFamily(
            "meshserve_min_slack_seconds",
            "Least slack of the decodes that can keep their promises; without such decodes there is none",
            labels=ENGINE,
        )
        if status.min_slack_s is not None:
            slack.add_metric((self._engine,), status.min_slack_s)
        return role, preempted, tokens, backlog, slack

    def _of_moves(self, status: EngineStatus) -> Iterable[Family]:
        leaving = GaugeMetricFamily("meshserve_migrations_running", "Requests that are leaving", labels=ENGINE)
        leaving.add_metric((self._engine,), status.num_migrating_out)
        left = CounterMetricFamily("meshserve_migrations", "Requests that left while they ran", labels=ENGINE)
        left.add_metric((self._engine,), status.migrations_total)
        aborted = CounterMetricFamily(
            "meshserve_migrations_aborted", "Requests that were to leave and did not", labels=ENGINE
        )
        aborted.add_metric((self._engine,), status.migrations_aborted_total)
        offloaded = GaugeMetricFamily("meshserve_offloaded", "Requests whose KV is in host memory", labels=ENGINE)
        offloaded.add_metric((self._engine,), status.num_offloaded)
        slices = CounterMetricFamily(
            "meshserve_slices", "Slices that ended, and what became of the request", labels=(*ENGINE, "fate")
        )
        slices.add_metric((self._engine, "kept"), status.slices_kept_total)
        slices.add_metric((self._engine, "moved"), status.slices_moved_total)
        slices.add_metric((self._engine, "offloaded"), status.slices_offloaded_total)
        return leaving, left, aborted, offloaded, slices

    def _of_tiers(self, status: EngineStatus) -> Iterable[Family]:
        """Nothing where there are no KV tiers."""
        if not status.tiers:
            return ()
        used = GaugeMetricFamily(
            "meshserve_tier_used_bytes", "Bytes in the KV tier, of all engines of the host", labels=(*ENGINE, "tier")
        )
        blocks = CounterMetricFamily(
            "meshserve_tier_blocks", "KV blocks that the engine moved, and faults", labels=(*ENGINE, "tier", "fate")
        )
        moved = CounterMetricFamily(
            "meshserve_tier_bytes", "Bytes of KV that the engine moved", labels=(*ENGINE, "tier", "fate")
        )
        for tier in status.tiers:
            labels = self._engine, tier.name
            used.add_metric(labels, tier.used_bytes)
            blocks.add_metric((*labels, "loaded"), tier.loaded_blocks)
            blocks.add_metric((*labels, "stored"), tier.stored_blocks)
            blocks.add_metric((*labels, "evicted"), tier.evicted_blocks)
            blocks.add_metric((*labels, "faulty"), tier.faults)
            blocks.add_metric((*labels, "left_out"), tier.left_out_blocks)
            moved.add_metric((*labels, "loaded"), tier.loaded_bytes)
            moved.add_metric((*labels, "stored"), tier.stored_bytes)
        dropped = CounterMetricFamily(
            "meshserve_tier_blocks_not_stored", "KV blocks given up before they could be stored", labels=ENGINE
        )
        dropped.add_metric((self._engine,), status.blocks_not_stored_total)
        stopped = CounterMetricFamily(
            "meshserve_tier_loads_stopped", "Loads from KV tiers that took too long", labels=ENGINE
        )
        stopped.add_metric((self._engine,), status.loads_stopped_total)
        return used, blocks, moved, dropped, stopped

    def _services(self, status: EngineStatus) -> str:
        """vLLM counts for one model; an engine of several tells all their names."""
        return ",".join(service.name for service in status.services)
