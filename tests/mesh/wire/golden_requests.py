"""Messages about requests, their KV and their prefixes, and what each is on the wire."""

from mesh.wire.messages import (
    Message,
)
from mesh.wire.prefixes import PrefixesHeld, ServicePrefixes, TellPrefixes
from mesh.wire.requests import (
    Accepted,
    Brought,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FinishReason,
    Found,
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

REQUESTS: list[tuple[Message, dict[str, object]]] = [
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
                Delta("r4", Epoch(0), 0, [6], None, 32, brought=Brought(16, 0.25, None, ["host", "disk"])),
                Delta("r5", Epoch(0), 0, [7], None, 16, brought=Brought(16, 0.5, "worker-1", [])),
            ]
        ),
        {
            "type": "StepTokens",
            "deltas": [
                ["r1", [1, 0], 0, [5], None, 2, [[5, -0.5, [[5, -0.5]]]], [None], None, None],
                ["r2", [1, 1], 3, [], "stop", 0, None, None, None, None],
                ["r3", [0, 0], 0, [0], "length", 0, None, None, b"\0\0\x80?", None],
                ["r4", [0, 0], 0, [6], None, 32, None, None, None, [16, 0.25, None, ["host", "disk"]]],
                ["r5", [0, 0], 0, [7], None, 16, None, None, None, [16, 0.5, "worker-1", []]],
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
        Commit("t1", [5], 2, 0.75, None, [TokenLogprobs(5, -0.5, [])], Found(16, Brought(16, 0.25, "worker-1", []))),
        {
            "type": "Commit",
            "transfer": "t1",
            "generated": [5],
            "num_blocks_messages": 2,
            "age_s": 0.75,
            "first_token_age_s": None,
            "logprobs": [[5, -0.5, []]],
            "found": [16, [16, 0.25, "worker-1", []]],
        },
    ),
    (Committed("t1", 17), {"type": "Committed", "transfer": "t1", "num_kept_tokens": 17}),
    (Abort("t1", "client left"), {"type": "Abort", "transfer": "t1", "reason": "client left"}),
]
