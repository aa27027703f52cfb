"""vLLM's worker for CPUs, as the backend has it. vLLM makes it by its name, in a process of its choice."""

from vllm.platforms import current_platform
from vllm.v1.worker.cpu_worker import CPUWorker

from engines.vllm_engine.in_pages import InPages

current_platform.get_punica_wrapper = lambda: "engines.vllm_engine.adapters.punica.MeshPunica"


class MeshCpuWorker(InPages, CPUWorker):  # type: ignore[misc]  # vLLM is not there when types are checked
    pass
