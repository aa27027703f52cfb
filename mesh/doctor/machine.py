"""Looks at the machine: Python, cores, memory, files, ports, folders and packages. The facts are read apart from the
rules, which are pure.
"""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from mesh.addresses import runtime_dir
from mesh.doctor.findings import Finding, Health, Patient
from mesh.errors import UserError
from mesh.extras import how_to_install, installed_version, lacking
from mesh.process.compiled_core import build_here
from mesh.process.process import MAX_FILES
from mesh.process.runtime_folder import make_runtime_dir
from mesh.supervisor.lock import holder
from mesh.supervisor.preflight import check_ipc_paths, check_ports
from mesh.topology.schema import EngineSpec, Topology

MIN_FILES = 4096  # open ones of a process: a gateway has one for each client
MIN_MEMORY = 2**30  # bytes: of a small model's engine
MIN_SHM = 2**30  # bytes: NCCL and Ray keep shared memory there, engines of one host do not
MATTERING = ("pyzmq", "uvloop", "msgspec", "numpy", "fastapi", "uvicorn", "tokenizers", "torch", "transformers", "vllm")
CGROUP = Path("/sys/fs/cgroup")
SHM = Path("/dev/shm")
FOR_DEVELOPERS = ("dev", "docs")  # extras that nobody needs to serve


def glance(patient: Patient) -> Iterator[Finding]:
    found = (cores(usable_cores(), patient.engines), memory(available_memory(), patient.engines), open_files(_files()))
    return (finding for finding in found if finding.health is not Health.OK)


def examine(patient: Patient) -> Iterator[Finding]:
    yield Finding("python", Health.OK, f"{platform.python_version()} at {sys.executable}")
    yield core(build_here())
    yield cores(usable_cores(), patient.engines)
    yield memory(available_memory(), patient.engines)
    yield open_files(_files())
    if SHM.is_dir():
        yield shared_memory(shutil.disk_usage(SHM).total)
    if patient.topology is not None and patient.host is not None:
        yield runtime_folder(patient.topology)
        yield ports(patient.topology, patient.host)
    yield versions((name, installed_version(name)) for name in MATTERING)
    yield from extras(lacking())


# --- rules ------------------------------------------------------------------------------------------------------------


def core(build: Path | None) -> Finding:
    """Say which of the two processes would run here: neither is a fault."""
    if build is None:
        return Finding("core", Health.OK, "runs as it is written (make compiled: decisions take less CPU)")
    return Finding("core", Health.OK, f"compiled, in {build}")


def cores(num_cores: int, engines: Iterable[EngineSpec]) -> Finding:
    """Threads of engines that take turns on a core wait for each other in every step."""
    threads = sum(engine.threads for engine in engines)
    text = f"{num_cores}" + (f", for {threads} threads of engines" if threads else "")
    if threads <= num_cores:
        return Finding("cores", Health.OK, text)
    return Finding("cores", Health.SLOW, text, "give engines fewer threads, or start fewer engines")


def memory(available_bytes: int, engines: Iterable[EngineSpec]) -> Finding:
    """Weights come on top of what topologies say of KV."""
    kv_bytes = sum(engine.kv_memory_bytes for engine in engines if engine.device == "cpu")
    text = f"{_gib(available_bytes)} available" + (f", for {_gib(kv_bytes)} of KV and the weights" if kv_bytes else "")
    if available_bytes < kv_bytes:
        return Finding("memory", Health.BROKEN, text, "lower kv_memory of the engines, or end other programs")
    if available_bytes < max(MIN_MEMORY, 2 * kv_bytes):
        return Finding("memory", Health.SLOW, text, "end other programs: what is swapped out answers late")
    return Finding("memory", Health.OK, text)


def open_files(most: int) -> Finding:
    text = f"a process may open {most}"
    if most >= MIN_FILES:
        return Finding("open files", Health.OK, text)
    return Finding("open files", Health.SLOW, text, f"raise the hard limit (ulimit -Hn) to {MIN_FILES} or more")


def shared_memory(size_bytes: int) -> Finding:
    text = f"{_gib(size_bytes)}"
    if size_bytes >= MIN_SHM:
        return Finding("/dev/shm", Health.OK, text)
    return Finding("/dev/shm", Health.SLOW, text, "NCCL and Ray want more; in a container, start it with --shm-size 1g")


def versions(found: Iterable[tuple[str, str | None]]) -> Finding:
    return Finding("versions", Health.OK, ", ".join(f"{name} {version}" for name, version in found if version))


def extras(lacks: dict[str, list[str]]) -> Iterator[Finding]:
    """An extra that is not there is no fault: what needs it says so."""
    for extra, missing in lacks.items():
        if extra not in FOR_DEVELOPERS:
            text = f"not installed ({how_to_install(extra)} adds {', '.join(missing)})" if missing else "installed"
            yield Finding(f"extra {extra}", Health.OK, text)


def runtime_folder(topology: Topology) -> Finding:
    try:
        check_ipc_paths(topology)
        folder = make_runtime_dir(topology)
    except UserError as error:
        return Finding("runtime folder", Health.BROKEN, str(error))
    return Finding("runtime folder", Health.OK, str(folder))


def ports(topology: Topology, host: str) -> Finding:
    """Judge those of this host's gateways; the mesh itself may have them."""
    here = [gateway for gateway in topology.gateways if gateway.host == host]
    text = ", ".join(f"{gateway.address}:{gateway.port}" for gateway in here) or "none here"
    if holder(runtime_dir(topology), host) is not None:
        return Finding("ports", Health.OK, f"{text}: the mesh runs")
    try:
        check_ports(topology, host, ())
    except UserError as error:
        return Finding("ports", Health.BROKEN, str(error))
    return Finding("ports", Health.OK, f"{text}: free")


# --- facts ------------------------------------------------------------------------------------------------------------


def usable_cores() -> int:
    """Return how many cores this process may use: of the machine, of its affinity, and of its control group."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(CGROUP / "cpu.max").partition(" ")
    return min(affine, max(1, int(quota) // int(period))) if quota.isdecimal() and period.isdecimal() else affine


def available_memory() -> int:
    """Return the bytes that this process may have: of the machine, and of its control group."""
    available = int(psutil.virtual_memory().available)
    most, used = _read(CGROUP / "memory.max"), _read(CGROUP / "memory.current")
    return min(available, max(0, int(most) - int(used))) if most.isdecimal() and used.isdecimal() else available


def _files() -> int:
    """Processes raise their limit to the hard one, and to no more than they need."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
