"""Orders to processes: roles, migration, drains, services, policies, stops."""

from enum import StrEnum

import msgspec

from mesh.wire.bounds import Count, Finite, Name

# Of a policy: what JSON and TOML can say of settings, two levels deep.
Setting = bool | int | Finite | str | None
Parameter = Setting | list[Setting | list[Setting]] | dict[str, Setting]


class Role(StrEnum):
    """Says what the policy uses an engine for. Every engine can do everything."""

    PREFILL = "prefill"
    DECODE = "decode"
    MULTIPLEX = "multiplex"


class PrefillMode(StrEnum):
    """Says how a prompt's chunks share iterations with the decodes of the same engine."""

    CHUNKED = "chunked"  # together with them, up to the engine's chunk_tokens (Sarathi-Serve)
    FIRST = "first"  # before them: they wait until the prompt is done (vLLM without chunks; Tropical's multiplexing)
    SLACK = "slack"  # together with them, as much as the slack that they have saved allows
    FORESEEN = "foreseen"  # likewise, with the slack that they will have saved when their answers end


class PrefillOrder(StrEnum):
    """Says which of the prompts that wait on an engine comes next, within a priority."""

    URGENCY = "urgency"  # those past their TTFT deadline, and their service's, then the shortest
    LENGTH = "length"  # the shortest, whoever starves (shortest job first)
    ARRIVAL = "arrival"  # first come, first served
    DEADLINE = "deadline"  # earliest TTFT deadline first, also before one that has begun; the late get another


class ProcessState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STUCK = "stuck"  # an engine whose step does not end: it hears, but computes nothing


class SetRole(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine its role from the next iteration on, if the role was changed ``num_role_changes`` times until
    now.

    The number lets one of several gateways be heard that saw the same status and ask for the same thing.

    ``plan``: the number of the placement plan that the sender knew the engine to have a place in, 0 if of none. An
    engine that knows a newer one stays as it is: the sender knew nothing of that. None: whoever says so knows best.
    """

    role: Role
    num_role_changes: Count
    plan: Count | None = None


class Migrate(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to move a request that decodes there to the engine ``to``, while it goes on.

    ``reason`` is for logs. The engine's statuses tell the outcome, and the gateway hears `Moved`.
    """

    request: Name
    to: Name
    reason: str


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to take nothing new, to move all that decodes there to other engines, and to refuse prefills that
    have not begun. With ``migrates_on_drain = false`` in its table, what decodes there ends there.

    With ``undo``, serve again.
    """

    undo: bool = False


class DrainServer(msgspec.Struct, frozen=True, tag=True):
    """Tells a gateway that a server which others run is to take nothing new: it lets the other gateways know.

    What runs there ends there. With ``undo``, it takes requests again.
    """

    server: Name
    undo: bool = False


class ServerDrain(msgspec.Struct, frozen=True):
    """Tells whether a server is drained. The highest version wins; all gateways repeat it."""

    is_drained: bool
    version: Count


class LoadService(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to serve this service of the topology, too, once its weights are there. Its statuses tell the
    outcome.
    """

    service: Name


class StageService(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to read the weights of this service into its host's memory, so that to load it later is to copy
    them. They stay there until it is loaded, or a plan is announced that does not want it there.
    """

    service: Name


class UnloadService(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to serve this service no more: its requests move to other engines or end, and then it is
    dropped.

    If it ``pauses``, its weights go at once. What decodes keeps its KV and waits for another engine to take it.
    """

    service: Name
    pauses: bool = False


class EnginePlace(msgspec.Struct, frozen=True):
    """Tells what the placement plan ``number``, of ``num_engines`` engines, wants of one of them."""

    number: Count
    num_engines: Count
    services: tuple[Name, ...]
    role: Role


class UsualLengths(msgspec.Struct, frozen=True):
    """Mean tokens of a service's prompts and answers, as gateways saw them of late."""

    service: Name
    prompt: Count
    answer: Count


class Announce(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to repeat its place in all statuses, unless it knows a plan with a higher number, and what
    requests of its services are usually like. It does nothing else.
    """

    place: EnginePlace
    lengths: tuple[UsualLengths, ...] = ()  # of those services of the place of which enough was seen


class PolicyChoice(msgspec.Struct, frozen=True):
    """A dispatch policy for all gateways, with all its parameters. The highest version wins; 0 is the topology's."""

    name: Name
    parameters: dict[Name, Parameter]
    version: Count = 0


class SetPolicy(msgspec.Struct, frozen=True, tag=True):
    """Tells a gateway to dispatch by this policy from now on, unless it knows of a later choice."""

    choice: PolicyChoice


class Locate(msgspec.Struct, frozen=True, tag=True):
    """Asks a gateway where the requests are that an id means: one's own, an answer's, or an ``x-request-id``.

    Its answer, `RequestPlaces`, is published under the topic of the process that asks, which needs no address for that.
    """

    asked: Name


class RequestPlace(msgspec.Struct, frozen=True):
    """Tells where a request is. ``engine`` is None if it waits at its gateway; ``end``: how it ended, if it has."""

    request: Name
    engine: Name | None
    end: str = ""


class RequestPlaces(msgspec.Struct, frozen=True, tag=True):
    """Answers `Locate`: the requests that are meant, newest first."""

    asked: Name
    places: list[RequestPlace]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Tells a supervisor to stop the processes of its host, after draining them unless ``now``."""

    now: bool = False


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Tells a supervisor to replace a process of its host by a new one, which reads the deployment again, as it
    replaces what a changed file concerns: requests do not notice.
    """

    process: Name


class SetRunning(msgspec.Struct, frozen=True, tag=True):
    """Tells a supervisor to start this process of its host, or to let it drain and end, and to keep it so."""

    process: Name
    running: bool
