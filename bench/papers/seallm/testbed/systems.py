"""What is compared: who places services, whose turn it is on an engine, and where a request goes."""

from dataclasses import dataclass
from enum import StrEnum

from mesh.topology.schema import Scheduling


class Planner(StrEnum):
    """Who puts services on devices: see `bench.papers.seallm.testbed.plans`."""

    SEARCH = "search"
    DEDICATED = "dedicated"
    ALPASERVE = "alpaserve"
    MUXSERVE = "muxserve"


class Replacement(StrEnum):
    """When services are placed anew during a run, by the placement daemon.

    With any of them, engines have room for weights of services that are to come, which KV does not get.
    """

    NEVER = "never"
    ADAPTIVE = "adaptive"  # SeaLLM, equation 8
    FORESEEN = "foreseen"  # each plan is for the very requests until the next one, and found in no time


@dataclass(frozen=True, slots=True)
class System:
    """A system, whose ``policy`` dispatches. ``has_quotas``: services have parts of an engine's KV memory, and no more.

    ``is_strict``: the request that ranks first names the phase of an iteration. ``replacement`` None: a plan stays.
    """

    name: str
    planner: Planner
    scheduling: Scheduling
    policy: str = "join_shortest_queue"
    has_quotas: bool = False
    is_strict: bool = False
    replacement: Replacement | None = None


OURS = System("ours", Planner.SEARCH, Scheduling.DB)
DEDICATED = System("dedicated", Planner.DEDICATED, Scheduling.SLO, policy="colocated")
ALPASERVE = System("alpaserve", Planner.ALPASERVE, Scheduling.FCFS)
ALPASERVE_STRICT = System("alpaserve-strict", Planner.ALPASERVE, Scheduling.FCFS, is_strict=True)
MUXSERVE = System("muxserve", Planner.MUXSERVE, Scheduling.ROUND_ROBIN, has_quotas=True)
WITHOUT_DB = System("-F", Planner.SEARCH, Scheduling.FCFS)
WITHOUT_DB_STRICT = System("-F-strict", Planner.SEARCH, Scheduling.FCFS, is_strict=True)
WITH_MLFQ = System("-M", Planner.SEARCH, Scheduling.MLFQ)
WITHOUT_SHARING = System("-P", Planner.DEDICATED, Scheduling.DB)
ADAPTIVE = System("adaptive", Planner.SEARCH, Scheduling.DB, replacement=Replacement.ADAPTIVE)
FORESEEN = System("foreseen", Planner.SEARCH, Scheduling.DB, replacement=Replacement.FORESEEN)
WITHOUT_REPLACEMENT = System("-A", Planner.SEARCH, Scheduling.DB, replacement=Replacement.NEVER)  # the paper's -A

RIVALS = (DEDICATED, ALPASERVE, MUXSERVE)
ABLATIONS = (WITHOUT_DB, WITH_MLFQ, WITHOUT_SHARING)
REPLACING = (ADAPTIVE, FORESEEN, WITHOUT_REPLACEMENT)
STRICT = {6: (ALPASERVE_STRICT,), 7: (ALPASERVE_STRICT,), 8: (WITHOUT_DB_STRICT,)}  # by figure
SYSTEMS = {
    system.name: system
    for system in (OURS, *RIVALS, *ABLATIONS, *REPLACING, *(one for extra in STRICT.values() for one in extra))
}
