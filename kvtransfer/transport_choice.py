"""Chooses how KV blocks come from another engine. Pure: what moves their bytes is in `kvtransfer.transports`."""

from collections.abc import Callable

from mesh.transports import TCP, Ends, fastest
from mesh.wire.transfers import MemoryRef


class TransportError(ValueError):
    """The topology demands a transport that these two engines cannot use."""


def choose(
    setting: str,
    memory: MemoryRef | None,
    host: str,
    can_open: Callable[[MemoryRef], bool],
    here: MemoryRef | None = None,
) -> str:
    """The receiver's choice; ``setting`` is the topology's, ``memory`` the sender's pool, ``here`` its own.

    Raise `TransportError` if the transport that is demanded cannot be had.
    """
    if setting == TCP:
        return TCP
    transport, reasons = fastest(setting, _ends(memory, host, can_open, here))
    if transport is None:
        raise TransportError(f"transport {setting} is demanded, but {reasons[setting]}; use auto or tcp")
    return transport


def _ends(memory: MemoryRef | None, host: str, can_open: Callable[[MemoryRef], bool], own: MemoryRef | None) -> Ends:
    there = None if memory is None else memory.device
    here = None if own is None else own.device
    is_one_host = memory is not None and memory.host == host
    is_readable = memory is not None and is_one_host and (there is None or here is not None) and can_open(memory)
    both = None if there is None or here is None else (there, here)
    return Ends(
        is_one_host,
        there is not None,
        here is not None,
        can_open=is_readable,
        have_nccl=both is None or all(device.has_nccl for device in both),
        is_one_gpu=both is not None and both[0].uuid == both[1].uuid,
        allow_two_ranks=both is None or all(device.allows_two_ranks for device in both),
        have_nixl=all(one is not None and one.nixl is not None for one in (memory, own)),
    )
