"""vLLM's worker for GPUs, as the backend has it. vLLM makes it by its name, in the engine's process."""

from vllm.v1.worker.gpu_worker import Worker

from engines.vllm_engine.in_pages import InPages


class MeshGpuWorker(InPages, Worker):  # type: ignore[misc]  # vLLM is not there when types are checked
    pass
