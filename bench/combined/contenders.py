"""Who is compared: everything on, the same with a part left out, single policies, and routers of others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bench.combined.setting import Layout
from mesh.rules import Trigger
from mesh.topology.schema import PolicySpec, Rescheduling

MIXED, SPLIT = Layout(), Layout(has_prefill=True)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its parameters on engines that are used in its way, and that move requests for these reasons."""

    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)
    layout: Layout = MIXED
    triggers: tuple[Trigger, ...] = ()

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec(self.policy, dict(self.parameters))

    @property
    def rescheduling(self) -> Rescheduling | None:
        return Rescheduling(triggers=self.triggers) if self.triggers else None


ALL_ON: Final = "everything"
UNION: Final = Contender("foresight", {"flips": True}, replace(SPLIT, slice_tokens=256), tuple(Trigger))
PARTS: Final[Mapping[str, Contender]] = {
    "without slack to come": replace(UNION, policy="elastic"),
    "without rescheduling": replace(UNION, triggers=()),
    "without moves by load and role": replace(UNION, triggers=(Trigger.PROMISE,)),
    "without slices": replace(UNION, layout=SPLIT),
    "without changes of role": replace(UNION, parameters={}),
    "without prefill engines": replace(UNION, parameters={}, layout=replace(UNION.layout, has_prefill=False)),
    "without shared engines": replace(UNION, layout=replace(UNION.layout, shares=False)),
    "without prefix caches": replace(UNION, layout=replace(UNION.layout, caches=False)),
    "without a margin": replace(UNION, parameters={"flips": True, "margin": 0.0}),
}
SINGLE: Final[Mapping[str, Contender]] = {
    "tropical": Contender("tropical", layout=SPLIT),
    "elastic": Contender("elastic", layout=SPLIT),
    "disaggregated": Contender("disaggregated", layout=SPLIT),
    "disaggregated, rejecting": Contender("disaggregated", {"reject_late": True}, SPLIT),
    "chunked": Contender("chunked"),
    "chunked, rejecting": Contender("chunked", {"reject_late": True}),
    "packing": Contender("packing", {"prefill": "slack"}),
    "llumnix": Contender("llumnix", triggers=tuple(Trigger)),
    "infaas": Contender("infaas"),
    "join_shortest_queue": Contender("join_shortest_queue"),
    "least_loaded": Contender("least_loaded"),
    "power_of_two": Contender("power_of_two"),
    "round_robin": Contender("round_robin"),
}
OTHERS: Final[Mapping[str, Contender]] = {
    "like vllm-router": Contender("cache_aware"),
    "like llm-d": Contender("predicted_latency"),
    "like llm-d, spreading": Contender("predicted_latency", {"prefer": "most"}),
    "like llm-d, split": Contender("predicted_latency", {"prefer": "most"}, SPLIT),
    "like Dynamo": Contender("kv_aware"),
}
CONTENDERS: Final[Mapping[str, Contender]] = {ALL_ON: UNION, **SINGLE, **OTHERS}
EVERYBODY: Final[Mapping[str, Contender]] = {**CONTENDERS, **PARTS}
