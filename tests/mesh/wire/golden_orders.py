"""Orders to processes and answers to them, and what each is on the wire."""

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
from mesh.wire.hosts import HostPlace, HostsMoved
from mesh.wire.messages import (
    Message,
)

ORDERS: list[tuple[Message, dict[str, object]]] = [
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
    (SetRole(Role.DECODE, 3, 7), {"type": "SetRole", "role": "decode", "num_role_changes": 3, "plan": 7}),
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
