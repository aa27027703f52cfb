"""KV memory of the torch engine on a GPU."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from kvtransfer.gpu.device import DeviceError
from kvtransfer.gpu.device_memory import PAGES_AT, DeviceMemory
from kvtransfer.layout import PageLayout
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec

if TYPE_CHECKING:
    from kvtransfer.gpu.cuda import CudaDevice


def gpu_memory(engine: EngineSpec, layout: PageLayout) -> DeviceMemory:
    """Raise `UserError` if there is no such GPU, no room on it, or nothing to use it with."""
    where = f"engines.{engine.id}: device {engine.device}"
    if not engine.device.startswith("cuda"):
        raise UserError(f"{where}: torch engines run on cpu, cuda or cuda:N")
    try:
        device = open_gpu(engine.device)
        return DeviceMemory(layout, device)
    except ImportError as error:
        raise UserError(f"{where} needs cupy ({error}): pip install 'meshserve[gpu]'") from None
    except DeviceError as error:
        raise UserError(f"{where}: {error}") from None


def open_gpu(name: str) -> "CudaDevice":
    """Raise ImportError without cupy, `DeviceError` without such a GPU."""
    torch.cuda.is_available()  # torch first: its NCCL is the one that this process has
    from kvtransfer.gpu.cuda import CudaDevice

    return CudaDevice(name)


def pages_tensor(memory: DeviceMemory) -> Tensor:
    """The pages as a flat tensor of bytes, in place. It keeps the memory."""
    from kvtransfer.gpu.cuda import array_of

    whole = from_dlpack(array_of(memory.device, memory.region))
    return whole[PAGES_AT:]
