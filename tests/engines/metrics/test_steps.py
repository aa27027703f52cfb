"""Steps as Prometheus sees them: by the kind of work in them."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from engines.metrics.steps import StepMetrics


def step(num_prompts: int, num_decodes: int) -> SimpleNamespace:
    prompts = [SimpleNamespace(num_tokens=100, drafts=(), drafting=None)] * num_prompts
    drafted = [SimpleNamespace(num_tokens=1, drafts=(), drafting=SimpleNamespace(number=2))] * (num_decodes > 1)
    decodes = [*drafted, *[SimpleNamespace(num_tokens=1, drafts=(), drafting=None)] * (num_decodes - len(drafted))]
    return SimpleNamespace(prompts=prompts, shares=[*prompts, *decodes], started_at=5.0)


def test_a_step_is_counted_by_what_it_computes():
    registry = CollectorRegistry()
    metrics = StepMetrics("decode-0", registry)
    for num_prompts, num_decodes in ((1, 0), (0, 8), (2, 3), (0, 1)):
        metrics.computed(step(num_prompts, num_decodes), 5.02)

    def value(name, kind):
        return registry.get_sample_value(name, {"engine": "decode-0", "kind": kind})

    kinds = "prefill", "decode", "mixed"
    assert [value("meshserve_step_seconds_count", kind) for kind in kinds] == [1, 2, 1]
    assert [value("meshserve_step_tokens_total", kind) for kind in kinds] == [100, 11, 205]
