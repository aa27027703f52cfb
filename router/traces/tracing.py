"""Puts the parts of tracing together for one gateway. Imported only where a topology asks for traces."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from random import Random

import structlog
from prometheus_client import CollectorRegistry

from mesh.clock import Clock
from mesh.errors import UserError
from mesh.topology.schema import TracesSpec
from router.api.metrics.traces import TraceHealth
from router.checks import NEEDS_OTEL, has_otel
from router.traces.collector import Collector
from router.traces.exporter import TraceExporter
from router.traces.settings import CollectorSettings
from router.traces.tracer import Tracer

SERVICE = "meshserve"

log = structlog.get_logger()


@contextmanager
def tracing(
    spec: TracesSpec, resource: Mapping[str, str], registry: CollectorRegistry, clock: Clock
) -> Iterator[Tracer]:
    """A tracer that exports until the end. ``resource``: attributes of the gateway. Raise `UserError` if it cannot."""
    if not has_otel():
        raise UserError(f"traces: {NEEDS_OTEL}")
    from router.traces.otlp import OtlpBatch

    settings, named = CollectorSettings.of(spec, os.environ), {"service.name": SERVICE, **resource}
    with Collector(settings) as collector:
        exporter = TraceExporter(
            collector,
            lambda: OtlpBatch(named),
            clock,
            time.time,
            max_per_s=spec.max_per_s,
            place=settings.place,
        )
        registry.register(TraceHealth(lambda: exporter.num_exported, lambda: exporter.num_dropped))
        log.info("tracing", collector=settings.place, sample=spec.sample)
        with closing(exporter):
            yield Tracer(spec.sample, Random(), exporter.take)
