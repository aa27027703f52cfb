"""Accelerates what devices do: graphs of decode steps, and attention that reads KV in place."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engines.torch_engine.graphs.decode_graphs import Capture, capture_cuda
from engines.torch_engine.graphs.recorded import StepRecorder
from engines.torch_engine.layers.paged_attention import PagedAttention, flash_attention, takes
from mesh.wire.transfers import KVShape


@dataclass(frozen=True, slots=True)
class Acceleration:
    """What a device does faster. ``capture`` makes graphs of decode steps. ``paged``: attention that reads such KV in
    place, if there is any. ``by_kernels``: our own kernels compute steps; see `DecodeGraphs`.
    """

    capture: Capture
    paged: Callable[[KVShape], PagedAttention | None]
    by_kernels: bool = False


def cuda_acceleration(device: torch.device) -> Acceleration:
    torch.backends.cuda.enable_cudnn_sdp(False)  # it fails in a graph (STREAM_MISMATCH) once it ran on another stream
    flash = flash_attention(device)
    return Acceleration(capture_cuda, lambda shape: flash if takes(shape) else None)


def cpu_acceleration() -> Acceleration:
    return Acceleration(StepRecorder(), lambda shape: None, by_kernels=True)
