"""Checks services that make vectors or numbers of prompts, and no tokens: their keys, and what their engines are."""

from collections.abc import Mapping
from typing import Any, Final

from mesh.rules import DraftMethod
from mesh.topology.keys import SERVICE
from mesh.topology.lines import KeyPath
from mesh.topology.placed import Processes, engine_tables
from mesh.topology.report import Report
from mesh.topology.schema import Scheduling, Task, Topology

OF_ANSWERS: Final = frozenset(
    {
        "tpot_ms",
        "max_output_tokens",
        "temperature",
        "top_p",
        "usual_answer",
        "min_tpot_ms",
        "tool_format",
        "reasoning_format",
        "reasoning",
        "speculation",
        "max_draft_tokens",
        "draft",
    }
)  # keys of a service that say something of its answers


def check_task_keys(fields: Mapping[str, Any], where: KeyPath, report: Report) -> None:
    """Report keys of one service that contradict its task, or each other. ``fields``: those that its table has."""
    task = fields.get("task", Task.GENERATE)
    for name, key in SERVICE.items():
        if key.field not in fields:
            continue
        if task is not Task.GENERATE and name in OF_ANSWERS:
            report.add((*where, name), f'is about the tokens of answers, and task = "{task!s}" has none; leave it out')
        elif name == "max_draft_tokens" and fields.get("speculation") is None:
            wanted = f'set speculation = "{DraftMethod.PROMPT_LOOKUP!s}", too, or leave it out'
            report.add((*where, name), f"bounds drafts, and nothing drafts; {wanted}")
        elif task is not Task.EMBED and name == "dimensions":
            report.add((*where, name), f'is about vectors, and task = "{task!s}" has none; leave it out')


def check_task_engines(topology: Topology, processes: Processes, report: Report) -> None:
    """Report engines that cannot have the services which they name, as they compute batches in another way."""
    tasks = {service.name: service.task for service in topology.services if service.pools}
    for table, spec in engine_tables(processes).items():
        name = next((name for name in spec.services if name in tasks), None)
        if name is None or spec.server is not None:
            continue
        if spec.scheduling is Scheduling.PADDED or spec.scheduling.is_static:
            problem = f'"{spec.scheduling!s}" batches end with their longest answer, and {name} has task ='
            report.add((*table, "scheduling"), f'{problem} "{tasks[name]!s}"; use scheduling = "slo"')
