"""The keys of each kind of table: the field that each fills, and how its value is read."""

from collections.abc import Mapping
from typing import NamedTuple

from mesh.chat_formats import REASONING_FORMATS, TOOL_FORMATS
from mesh.rules import Counting, DraftMethod, Lateness, PlacementMode, ScalingRule, Trigger
from mesh.topology.schema import ClusterEngine, Scheduling, Task
from mesh.topology.values import (
    Reader,
    boolean,
    choice,
    choices,
    collector_url,
    device,
    different_names,
    event_endpoints,
    fraction,
    fractions,
    headers,
    host,
    integer,
    integers,
    ip_or_any,
    json_lines,
    milliseconds,
    milliseconds_or_none,
    model,
    names,
    networks,
    number,
    options,
    positive,
    served,
    share,
    size,
    temperature,
    text,
    texts,
    tokenizer,
    url_or,
    urls,
)
from mesh.transports import SETTINGS
from mesh.wire.bounds import MAX_DIMENSIONS
from mesh.wire.control import Role


class Key(NamedTuple):
    field: str
    read: Reader


Keys = Mapping[str, Key]

MESH: Keys = {
    "name": Key("name", text),
    "log_level": Key("log_level", choice(("debug", "info", "warning", "error"), "a log level")),
    "curve_key": Key("curve_key", text),
    "heartbeat_ms": Key("heartbeat_s", milliseconds),
    "status_gap_ms": Key("status_gap_s", milliseconds_or_none),
    "lease_ms": Key("lease_s", milliseconds),
    "reply_ms": Key("reply_s", milliseconds),
    "drain_s": Key("drain_s", positive),
    "start_s": Key("start_s", positive),
    "stall_s": Key("stall_s", positive),
}

ACCESS: Keys = {
    "keys": Key("keys", text),
    "open": Key("open", boolean),
    "share_prefixes": Key("share_prefixes", boolean),
    "requests_per_minute": Key("requests_per_minute", integer(1, 10**12)),
    "tokens_per_minute": Key("tokens_per_minute", integer(1, 10**12)),
    "in_flight": Key("in_flight", integer(1, 10**12)),
    "max_priority": Key("max_priority", integer(-1000, 1000)),
    "min_ttft_ms": Key("min_ttft_ms", positive),
    "min_tpot_ms": Key("min_tpot_ms", positive),
}

TRACES: Keys = {
    "endpoint": Key("endpoint", collector_url),
    "sample": Key("sample", share),
    "max_per_s": Key("max_per_s", integer(1, 10_000)),
    "timeout_ms": Key("timeout_s", milliseconds),
}

SERVICE: Keys = {
    "model": Key("model", model),
    "ttft_ms": Key("ttft_s", milliseconds),
    "tpot_ms": Key("tpot_s", milliseconds),
    "attainment": Key("attainment", fraction),
    "dtype": Key("dtype", choice(("float32", "bfloat16", "float16", "int8"), "a dtype")),
    "kv_dtype": Key("kv_dtype", choice(("int8",), "a dtype of KV")),
    "max_context": Key("max_context", integer(2)),
    "max_output_tokens": Key("max_output_tokens", integer(1)),
    "temperature": Key("temperature", temperature),
    "top_p": Key("top_p", fraction),
    "priority": Key("priority", integer(-1000, 1000)),
    "aliases": Key("aliases", names),
    "usual_prompt": Key("usual_prompt", integer(1)),
    "usual_answer": Key("usual_answer", integer(1)),
    "max_priority": Key("max_priority", integer(-1000, 1000)),
    "min_ttft_ms": Key("min_ttft_s", milliseconds),
    "min_tpot_ms": Key("min_tpot_s", milliseconds),
    "tool_format": Key("tool_format", choice(TOOL_FORMATS, "a way to write calls of tools")),
    "reasoning_format": Key("reasoning_format", choice(REASONING_FORMATS, "a way to mark reasoning")),
    "reasoning": Key("reasoning", choice([rule.value for rule in Counting], "a way to count reasoning", Counting)),
    "tokenizer": Key("tokenizer", tokenizer),
    "task": Key("task", choice([task.value for task in Task], "a task", Task)),
    "late": Key("late", choice([rule.value for rule in Lateness], "a rule for late requests", Lateness)),
    "dimensions": Key("dimensions", integers(1, MAX_DIMENSIONS)),
    "speculation": Key("speculation", choice([one.value for one in DraftMethod], "a way to draft", DraftMethod)),
    "max_draft_tokens": Key("max_draft_tokens", integer(1, 15)),
    "draft": Key("draft", text),
}

# Of services that are LoRA adapters: what they do not say is as their base has it.
OF_ADAPTERS = (
    "ttft_ms", "tpot_ms", "attainment", "max_context", "max_output_tokens", "temperature", "top_p", "priority",
    "aliases", "max_priority", "min_ttft_ms", "min_tpot_ms", "late",
)  # fmt: skip
ADAPTER: Keys = {
    **{name: SERVICE[name] for name in OF_ADAPTERS},
    "base": Key("base", text),
    "adapter": Key("adapter", text),
}

ADAPTERS: Keys = {
    "folder": Key("folder", text),
    "most": Key("most", integer(1, 512)),
    "keep": Key("keep", boolean),
    "state": Key("state", text),
}

ENGINE: Keys = {
    "role": Key("role", choice([role.value for role in Role], "a role", Role)),
    "services": Key("services", served),
    "count": Key("count", integer(1, 1024)),
    "standby": Key("standby", integer(0, 1024)),
    "at_least": Key("at_least", integer(1, 1024)),
    "spans": Key("spans", different_names),
    "host": Key("host", text),
    "backend": Key("backend", text),
    "device": Key("device", device),
    "threads": Key("threads", integer(1, 1024)),
    "max_threads": Key("max_threads", integer(1, 1024)),
    "kv_memory": Key("kv_memory_bytes", size),
    "weight_memory": Key("weight_memory_bytes", size),
    "staging_memory": Key("staging_memory_bytes", size),
    "adapter_memory": Key("adapter_memory_bytes", size),
    "kv_quotas": Key("kv_quotas", fractions),
    "block_size": Key("block_size", integer(1, 1024)),
    "max_running": Key("max_running", integer(1)),
    "max_waiting": Key("max_waiting", integer(1)),
    "chunk_tokens": Key("chunk_tokens", integer(1)),
    "slice_tokens": Key("slice_tokens", integer(1)),
    "offload_memory": Key("offload_memory_bytes", size),
    "scheduling": Key("scheduling", choice([rule.value for rule in Scheduling], "a scheduling discipline", Scheduling)),
    "starvation_ms": Key("starvation_s", milliseconds),
    "prefix_caching": Key("prefix_caching", boolean),
    "strict_phases": Key("strict_phases", boolean),
    "migrates_on_drain": Key("migrates_on_drain", boolean),
    "num_devices": Key("num_devices", integer(1, 1024)),
    "profile": Key("profile", text),
    "imitates": Key("imitates", text),
    "python": Key("python", text),
    "metrics_address": Key("metrics_address", ip_or_any),
    "metrics_port": Key("metrics_port", integer(1, 65535)),
    "options": Key("options", options),
}

# Of engines that are servers of others.
SERVER: Keys = {
    "url": Key("url", urls),
    "kind": Key("kind", text),
    "weight": Key("weight", fraction),
    "api_key_file": Key("api_key_file", text),
    "api_key_env": Key("api_key_env", text),
    "headers": Key("headers", headers),
    "tls_ca": Key("tls_ca", text),
    "tls_insecure": Key("tls_insecure", boolean),
    "connect_timeout_ms": Key("connect_timeout_s", milliseconds),
    "read_timeout_s": Key("read_timeout_s", positive),
    "metrics": Key("metrics", url_or("auto", "off")),
    "kv_events": Key("kv_events", event_endpoints),
}

GATEWAY: Keys = {
    "count": Key("count", integer(1, 1024)),
    "host": Key("host", text),
    "address": Key("address", host),
    "port": Key("port", integer(1, 65535)),
    "max_body": Key("max_body_bytes", size),
    "max_images": Key("max_images", integer(1, 64)),
    "max_image": Key("max_image_bytes", size),
    "max_image_pixels": Key("max_image_pixels", integer(1, 2**26)),
    "max_requests": Key("max_requests", integer(1)),
    "max_waiting": Key("max_waiting", integer(1)),
    "recording": Key("recording", json_lines),
    "max_connections": Key("max_connections", integer(16)),
    "trusted_proxies": Key("trusted_proxies", networks),
    "admin_address": Key("admin_address", host),
    "admin_port": Key("admin_port", integer(1, 65535)),
    "ui": Key("ui", boolean),
    "tls_cert": Key("tls_cert", text),
    "tls_key": Key("tls_key", text),
    "allowed_hosts": Key("allowed_hosts", names),
    "cors_origins": Key("cors_origins", names),
}

BATCHES: Keys = {
    "folder": Key("folder", text),
    "max_bytes": Key("max_bytes", size),
    "max_file": Key("max_file_bytes", size),
    "max_in_flight": Key("max_in_flight", integer(1, 65536)),
}

RESPONSES: Keys = {
    "keep": Key("keep", boolean),
    "folder": Key("folder", text),
    "max_bytes": Key("max_bytes", size),
    "max_age_days": Key("max_age_days", integer(1, 3650)),
}

KV_TIERS: Keys = {
    "host": Key("host_bytes", size),
    "host_folder": Key("host_folder", text),
    "disk": Key("disk_bytes", size),
    "disk_folder": Key("disk_folder", text),
    "peers": Key("peers", boolean),
    "disk_key_file": Key("disk_key_file", text),
    "disk_key_env": Key("disk_key_env", text),
}

CLUSTER: Keys = {
    "on": Key("on", choice([engine.value for engine in ClusterEngine], "a cluster's engine", ClusterEngine)),
    "address": Key("address", text),
}

HOST: Keys = {
    "address": Key("address", text),
    "base_port": Key("base_port", integer(1, 65535)),
    "bind": Key("bind", ip_or_any),
    "count": Key("count", integer(1, 1024)),
    "cpus": Key("cpus", positive),
    "gpus": Key("gpus", positive),
    "memory": Key("memory_bytes", size),
    "labels": Key("labels", texts),
}

TRANSFER: Keys = {
    "transport": Key("transport", choice(SETTINGS, "a transport")),
    "checksum": Key("checksum", boolean),
    "deadline_ms": Key("deadline_s", milliseconds),
    "migration_share": Key("migration_share", fraction),
    "migration_deadline_ms": Key("migration_deadline_s", milliseconds),
}

RESCHEDULING: Keys = {
    "triggers": Key("triggers", choices([trigger.value for trigger in Trigger], "a trigger", Trigger)),
    "give_below": Key("give_below", number),
    "take_above": Key("take_above", number),
    "interval_ms": Key("interval_s", milliseconds),
    "rest_ms": Key("rest_s", milliseconds),
    "at_a_time": Key("at_a_time", integer(1, 64)),
    "neighbours": Key("neighbours", integer(2)),
}

SCALING: Keys = {
    "rule": Key("rule", choice([rule.value for rule in ScalingRule], "a rule of scaling", ScalingRule)),
    "interval_ms": Key("interval_s", milliseconds),
    "margin": Key("margin", positive),
    "down_after_s": Key("down_after_s", positive),
    "judge_s": Key("judge_s", positive),
    "clears_s": Key("clears_s", positive),
    "utilisation": Key("utilisation", fraction),
    "low_freeness": Key("low_freeness", number),
    "high_freeness": Key("high_freeness", number),
}

PLACEMENT: Keys = {
    "host": Key("host", text),
    "mode": Key("mode", choice([mode.value for mode in PlacementMode], "a mode", PlacementMode)),
    "interval_s": Key("interval_s", positive),
    "shortest_s": Key("shortest_s", positive),
    "longest_s": Key("longest_s", positive),
    "improve_s": Key("improve_s", positive),
    "workers": Key("workers", integer(1, 1024)),
    "min_gain": Key("min_gain", fraction),
    "max_latency_ratio": Key("max_latency_ratio", fraction),
    "load_s": Key("load_s", positive),
    "regroup_s": Key("regroup_s", positive),
    "max_services": Key("max_services", integer(1, 1024)),
}
