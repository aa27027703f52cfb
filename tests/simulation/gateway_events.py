"""A recorded stream of events of a gateway, and what a core makes of it. See `test_parity`."""

import json
from pathlib import Path

import msgspec

from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, GatewayMessage
from mesh.wire.requests import RequestSpec
from router.effects import Publish
from router.generation import RouterError

STREAM = Path(__file__).parent / "gateway_events.jsonl"
RECORDED = ("submit", "cancel", "finish", "fall_behind", "receive", "hear", "start", "open", "leave", "drain", "expire")
READ_AS = {"spec": RequestSpec, "message": GatewayMessage, "status": BroadcastMessage | None, "sender": Sender | str}
NAMES = {
    "submit": ("spec", "now", "tenant"),
    "cancel": ("request", "now"),
    "finish": ("request", "now"),
    "fall_behind": ("request", "num_bytes", "now"),
    "receive": ("process", "message", "now"),
    "hear": ("sender", "status", "now"),
    "start": ("now",),
    "open": ("url", "admin_url", "now"),
    "leave": ("now",),
    "drain": ("now",),
    "expire": ("now",),
}


class Recorder:
    """Stands before a core, and writes down what is called, times from the first event on."""

    def __init__(self, core):
        self.core = core
        self.lines = []

    def __getattr__(self, name):
        target = getattr(self.core, name)
        if name not in RECORDED:
            return target

        def call(*arguments):
            plain = arguments if name != "submit" else (arguments[0], *arguments[2:])  # without the timeline
            event = {"event": name, **dict(zip(NAMES[name], plain, strict=False))}
            self.lines.append(msgspec.json.encode(event).decode())
            return target(*arguments)

        return call


def read_events():
    """Each as its name and its arguments, in their types."""
    for line in STREAM.read_text().splitlines():
        event = json.loads(line)
        name = event.pop("event")
        yield name, {key: _typed(key, value) for key, value in event.items()}


def _typed(key, value):
    if key == "sender":
        return Sender(*value)
    return msgspec.convert(value, READ_AS[key]) if key in READ_AS else value


def replay(core):
    """Events, each with the effects that it has, as texts; a status that is published is one of them."""
    story = []
    for name, arguments in read_events():
        now = arguments["now"]
        try:
            effects = _call(core, name, arguments)
        except RouterError as error:
            story.append((name, [repr(error)]))
            continue
        texts = [repr(effect) for effect in effects]
        texts += [_status(core, now) for effect in effects if isinstance(effect, Publish)]
        story.append((name, [*texts, f"next at {core.next_deadline()}"]))
    return story


def _call(core, name, arguments):
    if name == "submit":
        timeline = core.dispatcher.timelines.arrived(arguments["spec"], arguments["now"])
        return core.submit(arguments["spec"], timeline, *list(arguments.values())[1:])
    return getattr(core, name)(*arguments.values())


def _status(core, now):
    return repr(msgspec.structs.replace(core.status(now), pid=0))
