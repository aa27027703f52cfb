"""Finds how engines are off, for ``mesh doctor`` and remarks of ``mesh up``: see `mesh.doctor.examiners.Examiner`."""

from collections.abc import Iterator

from engines.doctor import gpus, kernels, models
from engines.doctor.torch_report import TorchReport, ask_torch
from engines.models.cache import Cache
from mesh.doctor.findings import Finding, Health, Patient
from mesh.extras import missing_extra
from mesh.transports import NIXL, missing_transport

TORCH = "torch"


def glance(patient: Patient) -> Iterator[Finding]:
    if any(one.backend == TORCH and one.device == "cpu" and one.python is None for one in patient.engines):
        found = kernels.from_outside()
        if found.health is not Health.OK:
            yield found


def examine(patient: Patient) -> Iterator[Finding]:
    if problem := missing_extra("the torch backend", "torch", "torch", "safetensors"):
        yield Finding(TORCH, _without_torch(patient), *_in_two(problem))
        yield kernels.from_outside()
        report = TorchReport()
    else:
        report = ask_torch()
        yield Finding(TORCH, Health.BROKEN if report.problem else Health.OK, report.problem or report.text)
        yield kernels.from_inside(report)
    yield gpus.examine(gpus.list_gpus(), report, [one.device for one in patient.engines])
    yield models.cache(Cache.of_user())
    if patient.topology is not None and patient.topology.transfer.transport == NIXL:
        problem = missing_transport(NIXL)
        yield Finding(NIXL, Health.BROKEN, *_in_two(problem)) if problem else Finding(NIXL, Health.OK, "is installed")
    if patient.topology is not None:
        yield from (models.model(service) for service in patient.topology.services)


def _in_two(problem: str) -> tuple[str, str]:
    """What is missing, and what mends it."""
    text, _, mend = problem.partition(": ")
    return text, mend


def _without_torch(patient: Patient) -> Health:
    needs = any(one.backend == TORCH and one.python is None for one in patient.engines)
    return Health.BROKEN if needs or patient.topology is None else Health.OK
