"""Holds each backend's rules for its engines' tables: see `mesh.topology.backends.BackendRules`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from engines.adapters.ranks import RANK_OPTION, RANKS
from engines.costs.named_profiles import load_profile, num_devices_of
from engines.costs.profiles import ProfileError
from engines.costs.serving_systems import serving_system
from engines.vllm_engine.versions import NOT_INSTALLED
from mesh.extras import missing_extra
from mesh.rules import DraftMethod
from mesh.topology.placed import Processes, engine_tables
from mesh.topology.report import Report
from mesh.topology.schema import WHOLE_PROMPTS, EngineSpec, Scheduling, ServiceSpec, Topology
from mesh.wire.control import Role

BACKENDS = ("torch", "vllm", "transformers", "simulated")  # of `engines.loading`
MODELLED = ("simulated",)
VLLM, VLLM_BLOCK_MULTIPLE = "vllm", 32  # the backend; tokens of its blocks
TRANSFORMERS = "transformers"
NEEDS = {
    "torch": ("torch", ("torch", "safetensors")),
    VLLM: ("vllm", ("vllm",)),
    TRANSFORMERS: ("transformers", ("torch", "transformers")),
}  # backend: the extra, and modules of it
PADDING = ("simulated", TRANSFORMERS)  # backends whose static batches are padded
FIXED = (VLLM,)
GPU_BACKENDS = frozenset({"torch", VLLM})
ADAPTING = ("torch", VLLM, "simulated")  # backends that compute LoRA adapters
SEEING = frozenset({VLLM, "simulated"})  # backends that see images, where the model does
SPECULATING = ("torch", "simulated")  # backends whose steps check drafts
SHARING_THREADS = ("torch",)  # backends that compute with idle cores, too
STAGING = ("torch", "simulated")  # backends that read weights into their host's memory before they load them
SPANNING = (VLLM, "simulated")  # backends that compute a model on several devices
PARALLEL = "tensor_parallel_size"  # vLLM's option
KV_IN_BYTES = ("torch", "simulated")  # backends that keep KV in int8
NO_INT8 = "int8 is a dtype of torch engines"


def defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a serving system sets that is not known is left to `check`."""
    if given.get("backend") == TRANSFORMERS:
        return {"scheduling": Scheduling.PADDED}
    with suppress(ProfileError):
        return serving_system(given["imitates"]).settings if "imitates" in given else {}
    return {}


def missing(backend: str) -> str:
    extra, modules = NEEDS.get(backend, ("", ()))
    problem = missing_extra(f'backend = "{backend}"', extra, *modules)
    return NOT_INSTALLED if problem and backend == VLLM else problem  # it has an environment of its own


def check(topology: Topology, processes: Processes, report: Report) -> None:
    dtypes = {service.name: service.dtype for service in topology.services}
    pooled = {service.name: str(service.task) for service in topology.services if service.pools}
    others = {name for engine in topology.own_engines if engine.backend != VLLM for name in engine.services}
    in_bytes = [service.name for service in topology.services if service.kv_dtype == "int8"]
    ours = {table: engine for table, engine in engine_tables(processes).items() if engine.server is None}
    for table, engine in ours.items():
        for key, problem in (*_problems(engine, dtypes, others), *_pooled_problems(engine, dtypes, pooled)):
            report.add((*table, key), problem)
        for key, problem in _kv_problems(engine, in_bytes):
            report.add((*table, key), problem)
        for key, problem in _span_problems(engine, topology) if engine.spans else ():
            report.add((*table, key), problem)
    for service in topology.services:
        for key, problem in _speculation_problems(topology, service):
            report.add(("services", service.name, key), problem)
    for adapter in topology.adapters:
        if (why := why_no_base(topology, adapter.base or "")) is not None:
            report.add(("services", adapter.name, "base"), why)


def why_no_base(topology: Topology, service: str) -> str | None:
    """Return why a service can have no LoRA adapters; None if it can."""
    if topology.service(service).pools:
        return f"{service} makes no tokens; adapters are for services that generate"
    for engine in topology.engines:
        if service in engine.services and engine.server is not None:
            return f"{service} is on servers of others; let them load the adapter, and name its service there"
        if service in engine.services and engine.backend not in ADAPTING:
            known = ", ".join(ADAPTING)
            return f"engines.{engine.id} serves {service}, and its backend computes no adapters; use one of {known}"
    return None


def _speculation_problems(topology: Topology, service: ServiceSpec) -> Iterator[tuple[str, str]]:
    if service.speculation is None:
        if service.draft is not None:
            yield "draft", 'writes drafts where speculation = "draft_model"; add that, or leave it out'
        return
    engines = [engine for engine in topology.own_engines if service.name in engine.services]
    yield from _draft_problems(topology, service, engines)
    if not engines:
        yield "speculation", "only servers of others have it, and they speculate as they were started; leave it out"
    for engine in engines:
        if engine.backend not in SPECULATING:
            known = ", ".join(SPECULATING)
            problem = f"engines.{engine.id} has backend {engine.backend!r}, which checks no drafts"
            yield "speculation", f"{problem}; use {known}"
        if engine.scheduling.is_static:
            problem = f'engines.{engine.id} runs "{engine.scheduling!s}" batches, whose requests advance together'
            yield "speculation", f'{problem}; use scheduling = "slo"'


def _draft_problems(
    topology: Topology, service: ServiceSpec, engines: Sequence[EngineSpec]
) -> Iterator[tuple[str, str]]:
    """Of the service that writes drafts. ``engines``: those that check them."""
    others = {other.name: other for other in topology.services if other.name != service.name and not other.pools}
    name, known = service.draft, ", ".join(others) or "none yet"
    if service.speculation is not DraftMethod.DRAFT_MODEL:
        if name is not None:
            yield "draft", f'speculation = "{service.speculation!s}" has no model that drafts; leave it out'
    elif name is None:
        yield "speculation", f"lacks the service whose model writes the drafts; add draft, one of: {known}"
    elif name not in others:
        yield "draft", f"{name!r} is no other service that generates; there are: {known}"
    elif others[name].speculation is DraftMethod.DRAFT_MODEL:
        yield "draft", f"{name} waits for drafts itself; leave its speculation out"
    else:
        for engine in engines:
            if name not in engine.services and engine.role is not Role.PREFILL:
                both = f'services = ["{service.name}", "{name}"]'
                yield "draft", f"engines.{engine.id} decodes {service.name} and has no {name}; give it {both}"


def _problems(engine: EngineSpec, dtypes: Mapping[str, str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Key and problem, here and below. ``others``: services of engines that vLLM does not compute."""
    if engine.scheduling is Scheduling.PADDED and engine.backend not in PADDING:
        yield "scheduling", f'{engine.backend} engines pad no batches; use "static", which computes no padding'
    if engine.backend != VLLM and engine.options:
        yield "options", f'only backend = "vllm" has options, and this one has {engine.backend!r}'
    if engine.max_threads is not None:
        yield from _thread_problems(engine, engine.max_threads)
    if engine.staging_memory_bytes and engine.backend not in STAGING:
        yield "staging_memory", f"{engine.backend} engines read no weights ahead; {' and '.join(STAGING)} engines do"
    if engine.imitates is not None:
        yield from _imitation_problems(engine, engine.imitates)
    if engine.backend == VLLM:
        yield from _vllm_problems(engine, dtypes, others)
    elif engine.backend == TRANSFORMERS:
        yield from _transformers_problems(engine, dtypes)


def _kv_problems(engine: EngineSpec, in_bytes: Collection[str]) -> Iterator[tuple[str, str]]:
    """``in_bytes``: services with KV in int8."""
    for name in engine.services:
        if name in in_bytes and (engine.backend not in KV_IN_BYTES or engine.device != "cpu"):
            problem = f'torch engines on device "cpu" alone keep KV in int8, as {name} asks by its kv_dtype'
            yield "services", f"{problem}; leave kv_dtype out of [services.{name}]"


def _thread_problems(engine: EngineSpec, most: int) -> Iterator[tuple[str, str]]:
    if most < engine.threads:
        yield "max_threads", f"{most}: it has {engine.threads} threads at any time; take {engine.threads} or more"
    if engine.backend not in SHARING_THREADS:
        problem = f"{engine.backend} engines compute with the threads that they started with"
        yield "max_threads", f'{problem}; leave it out, or use backend = "torch"'
    elif engine.device != "cpu":
        yield "max_threads", f"threads do not compute on {engine.device}; leave it out"


def _imitation_problems(engine: EngineSpec, name: str) -> Iterator[tuple[str, str]]:
    if engine.backend not in MODELLED:
        yield "imitates", f'only backend = "simulated" imitates others, and this one has {engine.backend!r}'
    try:
        serving_system(name)
    except ProfileError as error:
        yield "imitates", str(error)


def _pooled_problems(
    engine: EngineSpec, dtypes: Mapping[str, str], pooled: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """``pooled``: the tasks of services that make no tokens."""
    for name in engine.services:
        if name not in pooled:
            continue
        if engine.backend == VLLM and len(engine.services) > 1:
            problem = f'{name} has task = "{pooled[name]}", and vLLM keeps the KV memory of such a service for itself'
            yield "services", f'{problem}; give it an engine of its own, such as services = ["{name}"]'
        if engine.backend == TRANSFORMERS:
            yield "backend", f'transformers engines generate, and {name} has task = "{pooled[name]}"; use "torch"'
        elif dtypes[name] == "int8":
            yield "backend", f'task = "{pooled[name]}" has no int8; give {name} float32, bfloat16 or float16'


def _vllm_problems(engine: EngineSpec, dtypes: Mapping[str, str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    if engine.block_size % VLLM_BLOCK_MULTIPLE:
        yield "block_size", f"{engine.block_size}: vLLM's attention wants multiples of {VLLM_BLOCK_MULTIPLE}"
    rank = engine.options.get(RANK_OPTION, RANKS[0])
    if rank not in RANKS:
        yield "options", f"{RANK_OPTION} = {rank!r}: use one of {', '.join(map(str, RANKS))}"
    for name in engine.services:
        if name in others:
            yield "backend", f"other engines of {name} are not of vLLM, and cannot take its KV; use one backend for it"
        if dtypes.get(name) == "int8":
            yield "backend", f"{NO_INT8}; give {name} float32, bfloat16 or float16"


def _transformers_problems(engine: EngineSpec, dtypes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if engine.scheduling is not Scheduling.PADDED:
        problem = f'transformers computes padded static batches, and this is "{engine.scheduling!s}"'
        yield "scheduling", f'{problem}; use "padded", or backend = "torch"'
    elif engine.chunk_tokens != WHOLE_PROMPTS:
        yield "chunk_tokens", f"{engine.chunk_tokens}: transformers computes prompts whole; leave it out"
    for name in engine.services:
        if dtypes.get(name) == "int8":
            yield "backend", f"{NO_INT8}; give {name} float32, bfloat16 or float16"


def _span_problems(engine: EngineSpec, topology: Topology) -> Iterator[tuple[str, str]]:
    """Key and problem of an engine that spans others."""
    others = [topology.engine(name) for name in engine.spans]
    if engine.backend not in SPANNING:
        yield "spans", f"{engine.backend} engines compute on one device; use {' or '.join(SPANNING)}"
        return
    if unlike := [other for other in others if other.backend != engine.backend]:
        yield "spans", f"{unlike[0].id} has backend {unlike[0].backend!r}, and this one {engine.backend!r}; use one"
        return
    with suppress(ProfileError):  # which is told elsewhere
        total, own = sum(map(num_devices_of, others)), num_devices_of(engine)
        of_profile = total if engine.profile is None else load_profile(engine.profile).num_devices
        if of_profile != total:
            yield "profile", f"{engine.profile} is of {_devices(of_profile)}, and {_span(engine, total)}"
        elif own != total:
            yield "num_devices", f"{own}: {_span(engine, total)}; leave it out"
        if engine.backend == VLLM:
            yield from _worker_problems(engine, total)


def _worker_problems(engine: EngineSpec, total: int) -> Iterator[tuple[str, str]]:
    if engine.device != "cpu":
        yield "spans", "a vLLM engine has one GPU; only those on CPUs span others"
    elif engine.options.get(PARALLEL, 1) != total:
        size = engine.options.get(PARALLEL, 1)
        yield "options", f"{PARALLEL} is {size}, and {_span(engine, total)}; use {PARALLEL} = {total}"


def _span(engine: EngineSpec, total: int) -> str:
    return f"{', '.join(engine.spans)} have {total} together"


def _devices(number: int) -> str:
    return f"{number} device{'s' * (number != 1)}"
