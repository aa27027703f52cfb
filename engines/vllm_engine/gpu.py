"""A vLLM engine's GPU: the only one that its process sees, for vLLM's first worker takes the first one."""

from collections.abc import MutableMapping

from mesh.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
FIRST = "cuda:0"
SHARE_OF_FREE = 0.9  # of what is free beside the KV memory: vLLM refuses to start where less is free than it may use
PARALLEL = (  # options of vLLM by which it would use several GPUs
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size",
    "decode_context_parallel_size",
)  # fmt: skip


def see_only(device: str, environ: MutableMapping[str, str]) -> None:
    """Let this process see ``device`` (cuda or cuda:N) alone, as `FIRST`. Before anything asks CUDA for devices.

    N counts those that it may see. Raise `UserError` if there are fewer.
    """
    number = int(device.partition(":")[2] or 0)
    visible = environ.get(VISIBLE)
    if visible is None:
        environ[VISIBLE] = str(number)
        return
    names = [name for name in visible.split(",") if name.strip()]
    if number >= len(names):
        raise UserError(f"device {device}: {VISIBLE}={visible} shows {len(names)} GPUs; name one of those")
    environ[VISIBLE] = names[number].strip()


def gpu_share() -> float:
    """Return the share of the GPU's memory that vLLM may use, of what is free now. Raise `UserError` if torch sees no
    GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise UserError("torch sees no GPU; vLLM on GPUs needs its builds for CUDA, which `make vllm-env` installs")
    free, total = torch.cuda.mem_get_info(FIRST)
    return SHARE_OF_FREE * free / total
