"""What Prometheus reads of an engine, from its last status."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from engines.metrics.engine import EngineNumbers
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus, TierStatus

D0, SERVICE = "decode-0", "chat"
STATUS = EngineStatus(
    seq=1,
    state=ProcessState.READY,
    role=Role.DECODE,
    host="local",
    pid=1,
    services=[ServiceStatus(SERVICE, 100, 25, 16, PrefillCost(0.0, 0.001), DecodeCost(0.01, 0.0))],
    num_running=3,
    num_waiting=2,
    num_tokens=300,
    prefill_remaining_s=0.25,
    prefill_waiting_s=0.5,
    decode_step_s=0.01,
    min_slack_s=-0.5,
)


def registry_of(status):
    registry = CollectorRegistry()
    registry.register(EngineNumbers(D0, lambda: status))
    return registry


def test_nothing_is_told_before_the_first_status():
    assert list(registry_of(None).collect()) == []


def test_each_number_of_a_status_has_one_name():
    status = replace(
        STATUS,
        num_migrating_out=2,
        migrations_total=7,
        migrations_aborted_total=3,
        preemptions_total=4,
        num_offloaded=5,
        slices_kept_total=9,
        slices_moved_total=8,
        slices_offloaded_total=6,
        tiers=[TierStatus("host", 4096, 10, 1000, 0.5, 20, 2000, 3, 1, 6)],
        blocks_not_stored_total=11,
        loads_stopped_total=12,
    )
    service = replace(status.services[0], num_running=3, num_waiting=2, decode_error=0.07)
    service = replace(service, drafts_checked=11, tokens_drafted=12, drafts_accepted=10)
    registry = registry_of(replace(status, services=[service]))

    def value(name, **labels):
        return registry.get_sample_value(name, {"engine": D0, **labels})

    assert value("vllm:num_requests_running", model_name=SERVICE) == 3
    assert value("vllm:num_requests_waiting", model_name=SERVICE) == 2
    assert value("vllm:kv_cache_usage_perc", model_name=SERVICE) == 0.75
    assert value("vllm:num_preemptions_total", model_name=SERVICE) == 4
    assert value("vllm:spec_decode_num_drafts_total", model_name=SERVICE) == 11
    assert value("vllm:spec_decode_num_draft_tokens_total", model_name=SERVICE) == 12
    assert value("vllm:spec_decode_num_accepted_tokens_total", model_name=SERVICE) == 10
    assert value("meshserve_step_prediction_error", model_name=SERVICE, step="decode") == 0.07
    assert value("meshserve_step_prediction_error", model_name=SERVICE, step="prefill") is None
    assert value("meshserve_min_slack_seconds") == -0.5
    assert value("meshserve_migrations_running") == 2
    assert value("meshserve_migrations_total") == 7
    assert value("meshserve_migrations_aborted_total") == 3
    assert value("meshserve_offloaded") == 5
    fates = {fate: value("meshserve_slices_total", fate=fate) for fate in ("kept", "moved", "offloaded")}
    assert fates == {"kept": 9, "moved": 8, "offloaded": 6}
    blocks = {
        fate: value("meshserve_tier_blocks_total", tier="host", fate=fate)
        for fate in ("loaded", "stored", "evicted", "faulty", "left_out")
    }
    assert blocks == {"loaded": 10, "stored": 20, "evicted": 3, "faulty": 1, "left_out": 6}
    moved = {fate: value("meshserve_tier_bytes_total", tier="host", fate=fate) for fate in ("loaded", "stored")}
    assert moved == {"loaded": 1000, "stored": 2000}
    assert value("meshserve_tier_used_bytes", tier="host") == 4096
    assert value("meshserve_tier_blocks_not_stored_total") == 11
    assert value("meshserve_tier_loads_stopped_total") == 12
    assert value("meshserve_engine_role", role="decode") == 1
    assert value("meshserve_engine_role", role="prefill") == 0
    assert value("meshserve_context_tokens") == 300
    assert value("meshserve_prefill_backlog_seconds") == 0.75


def test_without_decodes_that_can_keep_their_promise_there_is_no_slack():
    registry = registry_of(replace(STATUS, min_slack_s=None))
    assert registry.get_sample_value("meshserve_min_slack_seconds", {"engine": D0}) is None
