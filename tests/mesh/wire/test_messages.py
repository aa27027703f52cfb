"""The wire, pinned: what the plain ``msgpack`` library packs from a literal is byte for byte what the mesh sends."""

from typing import get_args

import msgpack
import pytest

from mesh.wire.adapters import (
    AdapterAnswer,
    AddAdapter,
    ExpectAdapter,
    ForgetAdapter,
    LoraAdapter,
    RemoveAdapter,
)
from mesh.wire.control import (
    Announce,
    Drain,
    DrainServer,
    EnginePlace,
    LoadService,
    Locate,
    Migrate,
    PolicyChoice,
    ProcessState,
    Renew,
    RequestPlace,
    RequestPlaces,
    Role,
    SetPolicy,
    SetRole,
    SetRunning,
    StageService,
    Stop,
    UnloadService,
    UsualLengths,
)
from mesh.wire.frames import Sender, WireError
from mesh.wire.hosts import HostPlace, HostsMoved
from mesh.wire.messages import (
    BroadcastMessage,
    Codec,
    EngineMessage,
    GatewayMessage,
    Message,
    SupervisorMessage,
    encode,
)
from mesh.wire.placement import Decision, Forecast, PlacementStatus, ServiceForecast
from mesh.wire.prefixes import PrefixesHeld, ServicePrefixes, TellPrefixes
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FinishReason,
    Held,
    Holding,
    Moved,
    NotHeld,
    PrefixAt,
    Probe,
    ProbeQuestion,
    Recall,
    RefusalCode,
    Refused,
    RequestSpec,
    Sampling,
    SlicesEnded,
    StepTokens,
    Submit,
    SubmitBatch,
    TokenLogprobs,
)
from mesh.wire.status import (
    ChildStatus,
    CountSpread,
    DecodeCost,
    Demand,
    EngineStatus,
    GatewayStatus,
    Mark,
    Memory,
    PrefillCost,
    ServiceStatus,
    ServiceTally,
    SupervisorStatus,
    Wanted,
)
from mesh.wire.transfers import (
    Abort,
    Blocks,
    Commit,
    Committed,
    Declined,
    Extend,
    Extended,
    KVShape,
    MemoryRef,
    Pull,
    Reserve,
    Reserved,
    Taken,
)

SPEC = RequestSpec("r1", "gateway-0", "chat", [1, 2, 3], Sampling(16, 7, temperature=0.0), 0.5, 0.05)
PLAIN_SPEC = {
    "id": "r1",
    "gateway": "gateway-0",
    "service": "chat",
    "prompt": [1, 2, 3],
    "sampling": {"max_tokens": 16, "seed": 7, "temperature": 0.0},
    "slo_ttft_s": 0.5,
    "slo_tpot_s": 0.05,
}
CONTINUED = RequestSpec(
    "r1", "g", "chat", [1], Sampling(1, 2), 0.5, 0.05, priority=1, generated=[9], age_s=1.5, first_token_age_s=0.25
)
PLAIN_CONTINUED = {
    "id": "r1",
    "gateway": "g",
    "service": "chat",
    "prompt": [1],
    "sampling": {"max_tokens": 1, "seed": 2},
    "slo_ttft_s": 0.5,
    "slo_tpot_s": 0.05,
    "priority": 1,
    "generated": [9],
    "age_s": 1.5,
    "first_token_age_s": 0.25,
}
SHAPE = KVShape(30, 3, 64, 16, "float32")
PLAIN_SHAPE = {"num_layers": 30, "num_kv_heads": 3, "head_dim": 64, "block_size": 16, "dtype": "float32", "form": ""}
DEMAND = Demand(2, 40, 60, 0.1, ((9, 70),), -1, -12)
SERVICE = ServiceStatus("chat", 100, 60, 16, PrefillCost(0.01, 0.001), DecodeCost(0.02, 0.002, 1e-6), demand=DEMAND)

GOLDEN: list[tuple[Message, dict[str, object]]] = [
    (
        Submit(SPEC, Epoch(1), decode_engine="decode-0"),
        {
            "type": "Submit",
            "spec": PLAIN_SPEC,
            "epoch": [1, 0],
            "decode_engine": "decode-0",
            "multiplex": False,
            "prefill": "chunked",
            "order": "urgency",
            "slice_tokens": None,
            "stays": False,
            "prefix_at": None,
        },
    ),
    (
        SubmitBatch([Submit(SPEC, Epoch(2), slice_tokens=128, prefix_at=PrefixAt("e1", 512))]),
        {
            "type": "SubmitBatch",
            "submits": [
                {
                    "type": "Submit",
                    "spec": PLAIN_SPEC,
                    "epoch": [2, 0],
                    "decode_engine": None,
                    "multiplex": False,
                    "prefill": "chunked",
                    "order": "urgency",
                    "slice_tokens": 128,
                    "stays": False,
                    "prefix_at": ["e1", 512],
                }
            ],
        },
    ),
    (SlicesEnded([("r1", Epoch(2, 1))]), {"type": "SlicesEnded", "requests": [["r1", [2, 1]]]}),
    (
        Migrate("r1", "decode-1", "by hand"),
        {"type": "Migrate", "request": "r1", "to": "decode-1", "reason": "by hand"},
    ),
    (Drain(), {"type": "Drain", "undo": False}),
    (LoadService("chat"), {"type": "LoadService", "service": "chat"}),
    (
        Announce(EnginePlace(3, 2, ("chat",), Role.DECODE), (UsualLengths("chat", 300, 200),)),
        {
            "type": "Announce",
            "place": {"number": 3, "num_engines": 2, "services": ["chat"], "role": "decode"},
            "lengths": [{"service": "chat", "prompt": 300, "answer": 200}],
        },
    ),
    (StageService("chat"), {"type": "StageService", "service": "chat"}),
    (UnloadService("chat"), {"type": "UnloadService", "service": "chat", "pauses": False}),
    (Recall("r1", Epoch(1)), {"type": "Recall", "request": "r1", "epoch": [1, 0]}),
    (Probe([ProbeQuestion("r1", 2, 7)]), {"type": "Probe", "requests": [["r1", 2, 7]]}),
    (
        Held([Holding("r1", 2, 7), Holding("r2", 0, None)]),
        {"type": "Held", "requests": [["r1", 2, 7], ["r2", 0, None]]},
    ),
    (NotHeld([("r1", 2)]), {"type": "NotHeld", "requests": [["r1", 2]]}),
    (Moved("r1", Epoch(1, 2), "decode-1"), {"type": "Moved", "request": "r1", "epoch": [1, 2], "to": "decode-1"}),
    (Extend("t1", 33), {"type": "Extend", "transfer": "t1", "num_tokens": 33}),
    (Extended("t1", 48), {"type": "Extended", "transfer": "t1", "num_tokens": 48}),
    (SetRole(Role.DECODE, 3, 7), {"type": "SetRole", "role": "decode", "num_role_changes": 3, "plan": 7}),
    (Cancel("r1", Epoch(1)), {"type": "Cancel", "request": "r1", "epoch": [1, 0]}),
    (Accepted("r1", Epoch(1), 9), {"type": "Accepted", "request": "r1", "epoch": [1, 0], "status_seq": 9}),
    (
        Refused("r1", Epoch(2, 1), RefusalCode.NO_MEMORY, "pool too small"),
        {"type": "Refused", "request": "r1", "epoch": [2, 1], "code": "no_memory", "reason": "pool too small"},
    ),
    (
        StepTokens(
            [
                Delta("r1", Epoch(1), 0, [5], None, 2, [TokenLogprobs(5, -0.5, [(5, -0.5)])], [None]),
                Delta("r2", Epoch(1, 1), 3, [], FinishReason.STOP),
                Delta("r3", Epoch(0), 0, [0], FinishReason.LENGTH, vector=b"\0\0\x80?"),
            ]
        ),
        {
            "type": "StepTokens",
            "deltas": [
                ["r1", [1, 0], 0, [5], None, 2, [[5, -0.5, [[5, -0.5]]]], [None], None],
                ["r2", [1, 1], 3, [], "stop", 0, None, None, None],
                ["r3", [0, 0], 0, [0], "length", 0, None, None, b"\0\0\x80?"],
            ],
        },
    ),
    (TellPrefixes(), {"type": "TellPrefixes"}),
    (
        PrefixesHeld(2, [ServicePrefixes("chat", [1, 2**48 - 1], [3], [4])]),
        {
            "type": "PrefixesHeld",
            "number": 2,
            "services": [{"service": "chat", "kept": [1, 2**48 - 1], "gone": [3], "lost": [4]}],
            "is_all": False,
        },
    ),
    (Failed("r1", Epoch(1), "bad"), {"type": "Failed", "request": "r1", "epoch": [1, 0], "reason": "bad"}),
    (
        Reserve("t1", CONTINUED, Epoch(1, 1), 17, SHAPE, MemoryRef("local", "/proc/7/fd/9", 4096, "00ff"), 10.0),
        {
            "type": "Reserve",
            "transfer": "t1",
            "spec": PLAIN_CONTINUED,
            "epoch": [1, 1],
            "num_tokens": 17,
            "shape": PLAIN_SHAPE,
            "memory": {
                "host": "local",
                "path": "/proc/7/fd/9",
                "size_bytes": 4096,
                "token": "00ff",
                "device": None,
                "nixl": None,
            },
            "deadline_s": 10.0,
            "is_migration": False,
            "min_freeness": None,
            "must_leave": False,
            "model": "",
            "is_pull": False,
        },
    ),
    (
        Pull("t1", "r1", "g1", "chat", "m", SHAPE, [bytes(range(16))]),
        {
            "type": "Pull",
            "transfer": "t1",
            "request": "r1",
            "gateway": "g1",
            "service": "chat",
            "model": "m",
            "shape": PLAIN_SHAPE,
            "digests": [bytes(range(16))],
        },
    ),
    (
        Reserved("t1", 16, "shm"),
        {"type": "Reserved", "transfer": "t1", "num_matched_tokens": 16, "transport": "shm"},
    ),
    (
        Declined("t1", RefusalCode.DRAINING, "draining"),
        {"type": "Declined", "transfer": "t1", "code": "draining", "reason": "draining"},
    ),
    (
        Blocks("t1", 0, 1, 20, [4, 2], [2**63, 1], [2**32 - 1, 0]),
        {
            "type": "Blocks",
            "transfer": "t1",
            "seq": 0,
            "first_block": 1,
            "num_tokens": 20,
            "source_blocks": [4, 2],
            "generations": [2**63, 1],
            "checksums": [2**32 - 1, 0],
        },
    ),
    (Taken("t1", 3, True), {"type": "Taken", "transfer": "t1", "seq": 3, "ok": True}),
    (
        Commit("t1", [5], 2, 0.75, None, [TokenLogprobs(5, -0.5, [])]),
        {
            "type": "Commit",
            "transfer": "t1",
            "generated": [5],
            "num_blocks_messages": 2,
            "age_s": 0.75,
            "first_token_age_s": None,
            "logprobs": [[5, -0.5, []]],
        },
    ),
    (Committed("t1", 17), {"type": "Committed", "transfer": "t1", "num_kept_tokens": 17}),
    (Abort("t1", "client left"), {"type": "Abort", "transfer": "t1", "reason": "client left"}),
    (Stop(now=True), {"type": "Stop", "now": True}),
    (Renew("gateway"), {"type": "Renew", "process": "gateway"}),
    (SetRunning("decode-1", running=False), {"type": "SetRunning", "process": "decode-1", "running": False}),
    (
        SetPolicy(PolicyChoice("tropical", {"watermark": 0.5}, 3)),
        {"type": "SetPolicy", "choice": {"name": "tropical", "parameters": {"watermark": 0.5}, "version": 3}},
    ),
    (Locate("cmpl-7"), {"type": "Locate", "asked": "cmpl-7"}),
    (
        RequestPlaces("cmpl-7", [RequestPlace("r", "decode-0")]),
        {"type": "RequestPlaces", "asked": "cmpl-7", "places": [{"request": "r", "engine": "decode-0", "end": ""}]},
    ),
    (
        EngineStatus(
            seq=1,
            state=ProcessState.READY,
            role=Role.MULTIPLEX,
            host="local",
            pid=42,
            services=[SERVICE],
            num_running=1,
            num_waiting=2,
            num_tokens=300,
            prefill_remaining_s=0.0,
            prefill_waiting_s=0.5,
            decode_step_s=0.03,
            min_slack_s=None,
        ),
        {
            "type": "EngineStatus",
            "seq": 1,
            "state": "ready",
            "role": "multiplex",
            "host": "local",
            "pid": 42,
            "services": [
                {
                    "name": "chat",
                    "num_blocks": 100,
                    "num_free_blocks": 60,
                    "block_size": 16,
                    "prefill_cost": {
                        "fixed_s": 0.01,
                        "per_token_s": 0.001,
                        "per_token_context_s": 0.0,
                        "per_cached_token_s": 0.0,
                        "chunk_tokens": 0,
                        "table": [],
                    },
                    "decode_cost": {
                        "fixed_s": 0.02,
                        "per_request_s": 0.002,
                        "per_context_token_s": 1e-6,
                        "table": [],
                        "per_mean_context_token_s": 0.0,
                    },
                    "prefill_error": None,
                    "decode_error": None,
                    "num_running": 0,
                    "freeness": 0.0,
                    "is_leaving": False,
                    "demand": {
                        "num_requests": 2,
                        "prompt_tokens": 40,
                        "answer_tokens": 60,
                        "tpot_slo_s": 0.1,
                        "peaks": [[9, 70]],
                        "error_requests": -1,
                        "error_tokens": -12,
                    },
                    "weight_bytes": 0,
                    "growth_blocks": 0,
                    "held_by_priority": [],
                    "model": "",
                    "num_waiting": 0,
                    "fillers_waiting": 0,
                    "fillers_running": 0,
                    "drafts_checked": 0,
                    "tokens_drafted": 0,
                    "drafts_accepted": 0,
                    "tier_tokens": 0,
                    "tier_token_s": 0.0,
                    "is_paused": False,
                    "pull_s": 0.0,
                    "pull_token_s": 0.0,
                    "line_s": None,
                }
            ],
            "num_running": 1,
            "num_waiting": 2,
            "num_tokens": 300,
            "prefill_remaining_s": 0.0,
            "prefill_waiting_s": 0.5,
            "decode_step_s": 0.03,
            "min_slack_s": None,
            "min_tpot_slo_s": None,
            "foreseen": [],
            "prefills": [],
            "pace_s": 0.0,
            "num_role_changes": 0,
            "num_devices": 1,
            "max_running": 0,
            "num_reserved": 0,
            "cancelled_total": 0,
            "preemptions_total": 0,
            "num_offloaded": 0,
            "slices_kept_total": 0,
            "slices_moved_total": 0,
            "slices_offloaded_total": 0,
            "num_migrating_out": 0,
            "num_migrating_in": 0,
            "migrations_total": 0,
            "migrations_aborted_total": 0,
            "last_aborted_migration": None,
            "place": None,
            "loading": [],
            "failed_loads": [],
            "weight_memory": None,
            "error": None,
            "metrics_url": "",
            "keeps_order": False,
            "keeps_role": False,
            "step_wait_s": 0.0,
            "adapters": [],
            "tiers": [],
            "blocks_not_stored_total": 0,
            "loads_stopped_total": 0,
            "prefix_news": 0,
            "staging_memory": 0,
            "staging": [],
            "staged": {},
        },
    ),
    (
        AddAdapter("sql", "sql", "chat"),
        {"type": "AddAdapter", "service": "sql", "path": "sql", "base": "chat", "in_place": False},
    ),
    (RemoveAdapter("sql"), {"type": "RemoveAdapter", "service": "sql"}),
    (AdapterAnswer("sql", "why not"), {"type": "AdapterAnswer", "service": "sql", "problem": "why not"}),
    (
        ExpectAdapter("chat", LoraAdapter("sql", "/adapters/sql", "5ad1", 4096)),
        {
            "type": "ExpectAdapter",
            "service": "chat",
            "adapter": {"service": "sql", "folder": "/adapters/sql", "digest": "5ad1", "num_weights": 4096},
        },
    ),
    (ForgetAdapter("sql"), {"type": "ForgetAdapter", "service": "sql"}),
    (DrainServer("gpu", True), {"type": "DrainServer", "server": "gpu", "undo": True}),
    (
        GatewayStatus(
            3,
            ProcessState.DRAINING,
            "local",
            43,
            "http://127.0.0.1:8000",
            4,
            1,
            breakers={"decode-0": "open"},
            services=[ServiceTally("chat", 2, 30, 500, 1, 0, 1, 8, 64, 1.5, 1)],
            wanted=[Wanted("chat", Role.DECODE, 7, 2)],
            mark=Mark(
                Memory(6, 60.0, 1.5, 2, ["chat"], [], 120.0, 2, {"chat": CountSpread(11, 50.5, 180.25)}), 12.5, []
            ),
            admin_url="http://127.0.0.1:9000",
        ),
        {
            "type": "GatewayStatus",
            "seq": 3,
            "state": "draining",
            "host": "local",
            "pid": 43,
            "url": "http://127.0.0.1:8000",
            "num_requests": 4,
            "num_waiting": 1,
            "policy": None,
            "policy_age_s": 0.0,
            "breakers": {"decode-0": "open"},
            "services": [
                {
                    "name": "chat",
                    "arrived": 2,
                    "input_tokens": 30,
                    "input_squares": 500,
                    "ended": 1,
                    "late": 0,
                    "answered": 1,
                    "output_tokens": 8,
                    "output_squares": 64,
                    "latency_s": 1.5,
                    "gone": 1,
                }
            ],
            "wanted": [{"service": "chat", "role": "decode", "num_requests": 7, "num_engines": 2}],
            "mark": {
                "memory": {
                    "interval": 6,
                    "interval_s": 60.0,
                    "estimate": 1.5,
                    "settled": 2,
                    "services": ["chat"],
                    "seen": [],
                    "seen_s": 120.0,
                    "seen_intervals": 2,
                    "seen_spreads": {"chat": {"pairs": 11, "arrived": 50.5, "squares": 180.25}},
                },
                "age_s": 12.5,
                "services": [],
            },
            "admin_url": "http://127.0.0.1:9000",
            "servers": {},
            "drains": {},
            "adapters": {},
        },
    ),
    (
        PlacementStatus(
            7,
            ProcessState.READY,
            "local",
            44,
            "shadow",
            "listening",
            2,
            47.5,
            decision=Decision(
                5,
                "replace",
                "a better plan was found",
                2,
                60.0,
                4.5,
                {"decode-0": EnginePlace(3, 1, ("chat",), Role.DECODE)},
                [ServiceForecast("chat", 2.5, (100.0, 50.0), (20.0, 5.0), 0.5, 0.75, 1.0, 3.5)],
                Forecast(0.5, 8.0),
                num_loads=1,
                homeless=["code: no room"],
            ),
            decisions_total={"replace": 1},
        ),
        {
            "type": "PlacementStatus",
            "seq": 7,
            "state": "ready",
            "host": "local",
            "pid": 44,
            "mode": "shadow",
            "doing": "listening",
            "plan": 2,
            "next_decision_s": 47.5,
            "memory": None,
            "interval_age_s": 0.0,
            "decision": {
                "interval": 5,
                "verdict": "replace",
                "reason": "a better plan was found",
                "plan": 2,
                "interval_s": 60.0,
                "search_s": 4.5,
                "places": {"decode-0": {"number": 3, "num_engines": 1, "services": ["chat"], "role": "decode"}},
                "services": [
                    {
                        "name": "chat",
                        "rate": 2.5,
                        "num_input": [100.0, 50.0],
                        "num_output": [20.0, 5.0],
                        "achieved": 0.5,
                        "predicted": 0.75,
                        "proposed": 1.0,
                        "dispersion": 3.5,
                    }
                ],
                "achieved": {"attainment": 0.5, "normalized_latency": 8.0},
                "predicted": None,
                "proposed": None,
                "num_loads": 1,
                "homeless": ["code: no room"],
            },
            "decision_age_s": 0.0,
            "made": None,
            "made_age_s": 0.0,
            "decisions_total": {"replace": 1},
            "changes_total": 0,
            "changes_failed_total": 0,
            "error": None,
            "pools": [],
        },
    ),
    (
        SupervisorStatus(5, "local", 41, [ChildStatus("decode-0", "engine", None, "restarting", 2, "signal 9", 17)]),
        {
            "type": "SupervisorStatus",
            "seq": 5,
            "host": "local",
            "pid": 41,
            "children": [
                {
                    "process": "decode-0",
                    "kind": "engine",
                    "pid": None,
                    "state": "restarting",
                    "num_restarts": 2,
                    "last_exit": "signal 9",
                    "ended_incarnation": 17,
                }
            ],
            "stopping": False,
            "away": [],
        },
    ),
    (
        HostsMoved([HostPlace("left", "10.0.0.1", 5600, "0.0.0.0", 7)]),
        {
            "type": "HostsMoved",
            "places": [
                {
                    "name": "left",
                    "address": "10.0.0.1",
                    "base_port": 5600,
                    "bind": "0.0.0.0",
                    "incarnation": 7,
                    "is_away": False,
                }
            ],
        },
    ),
]


def name(message):
    return type(message).__name__


@pytest.mark.parametrize(("message", "plain"), GOLDEN, ids=[name(message) for message, _ in GOLDEN])
def test_the_wire_of_each_message(message, plain):
    """Fields in their order, and each value in its form; headers of maps may be longer than they need to be, which
    msgspec makes those of structs with more than 15 fields that are not all there.
    """
    body = encode(message)
    assert msgpack.packb(msgpack.unpackb(body)) == msgpack.packb(plain)
    assert msgpack.unpackb(body) == plain
    assert Codec(Message).decode(body) == message


def test_every_message_is_pinned():
    assert {type(message) for message, _ in GOLDEN} == set(get_args(Message))


def test_the_bytes_themselves():
    golden = b"\x84\xa4type\xa5Taken\xa8transfer\xa2t1\xa3seq\x03\xa2ok\xc3"
    assert encode(Taken("t1", 3, True)) == golden


def test_fields_of_a_newer_version_are_ignored():
    body = msgpack.packb({"type": "Cancel", "request": "r1", "epoch": [1, 0], "since": 1})
    assert Codec(EngineMessage).decode(body) == Cancel("r1", Epoch(1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x84\xa4type",
        msgpack.packb([1, 2]),
        msgpack.packb({}),
        msgpack.packb({"request": "r1"}),
        msgpack.packb({"type": "Explode", "request": "r1"}),
        msgpack.packb({"type": "Cancel"}),
        msgpack.packb({"type": "Cancel", "request": 1, "epoch": [1, 0]}),
        msgpack.packb({"type": "Taken", "transfer": "t", "seq": "0", "ok": True}),
        msgpack.packb({"type": "Declined", "transfer": "t", "code": "bored", "reason": ""}),
        msgpack.packb({"type": "Cancel", "request": "r1", "epoch": [1, 0]}) + b"\x00",
        msgpack.packb({"type": "Stop", "now": True}),
    ],
    ids=[
        "empty",
        "never used byte",
        "truncated",
        "not a map",
        "empty map",
        "no type",
        "unknown type",
        "missing field",
        "wrong type of a field",
        "text for a number",
        "unknown code",
        "trailing bytes",
        "a message of another socket",
    ],
)
def test_malformed_bodies_are_wire_errors(body):
    with pytest.raises(WireError, match="malformed body"):
        Codec(EngineMessage).decode(body)


@pytest.mark.parametrize("union", [EngineMessage, GatewayMessage, SupervisorMessage, BroadcastMessage])
def test_each_socket_takes_its_own_messages_only(union):
    codec = Codec(union)
    members = set(get_args(union)) or {union}
    for message, _ in GOLDEN:
        if type(message) in members:
            assert codec.decode(encode(message)) == message
        else:
            with pytest.raises(WireError):
                codec.decode(encode(message))


def test_senders_are_readable():
    assert Sender("decode-0", 17).encode() == b"decode-0@17"
    assert Sender.decode(b"supervisor-h.1_x@3") == Sender("supervisor-h.1_x", 3)
    assert Sender.decode(b"gateway~@3") == Sender("gateway~", 3)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"@1",
        b"a@",
        b"a",
        b"a@-1",
        b"~@1",
        b"a~b@1",
        b"a@1.5",
        b"\xff\xfe",
        b"a@b@3",
        b"a\n@1",
        b"a@1\n",
        b"../a@1",
        "a@\N{ARABIC-INDIC DIGIT THREE}".encode(),
        b"a@" + b"9" * 19,
        b"a@" + b"9" * 5000,
        b"a" * 5000 + b"@1",
    ],
)
def test_bad_sender_frames_are_wire_errors(frame):
    with pytest.raises(WireError, match="bad sender frame"):
        Sender.decode(frame)


def test_epochs_order_owners():
    assert Epoch(1) < Epoch(1).handed_over() < Epoch(2) == Epoch(2, 0)
