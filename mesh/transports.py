"""Decides which transports can carry KV blocks between two engines, for the engines and for ``mesh check``."""

from dataclasses import dataclass

from mesh.extras import missing_extra

AUTO = "auto"
CUDA_IPC = "cuda-ipc"
NCCL = "nccl"
NIXL = "nixl"
SHM = "shm"
TCP = "tcp"
AUTOMATIC = (CUDA_IPC, NCCL, SHM, TCP)  # the fastest first
SETTINGS = (AUTO, *AUTOMATIC, NIXL)


@dataclass(frozen=True, slots=True)
class Ends:
    """What is known of two engines, and of the memories of both. ``can_open``: the sender's, by the receiver.

    ``have_nccl`` and ``is_one_gpu`` matter where both are on GPUs; ``have_nixl``: agents of NIXL know both memories.
    """

    is_one_host: bool
    source_is_gpu: bool
    target_is_gpu: bool
    can_open: bool = True
    have_nccl: bool = True
    is_one_gpu: bool = False
    allow_two_ranks: bool = False  # of an NCCL communicator on one GPU
    have_nixl: bool = True

    @property
    def are_gpus(self) -> bool:
        return self.source_is_gpu and self.target_is_gpu


def why_not(transport: str, ends: Ends) -> str | None:
    """Return why a transport of `SETTINGS` cannot be used between two ends; None if it can."""
    if transport == CUDA_IPC:
        return _why_not_cuda_ipc(ends)
    if transport == NCCL:
        return _why_not_nccl(ends)
    if transport == SHM:
        return _why_not_shm(ends)
    if transport == NIXL and not ends.have_nixl:
        return 'not both engines run NIXL; give both transport = "nixl"'
    return None


def _why_not_cuda_ipc(ends: Ends) -> str | None:
    if not ends.are_gpus:
        return "not both engines keep their KV on a GPU"
    return _why_not_mapped(ends)


def _why_not_nccl(ends: Ends) -> str | None:
    if not ends.are_gpus:
        return "not both engines keep their KV on a GPU"
    if not ends.have_nccl:
        return "not both engines have NCCL; the extra gpu brings it"
    if ends.is_one_gpu and not ends.allow_two_ranks:
        return "both engines are on one GPU; NCCL 2.32 takes them if both have NCCL_MULTI_RANK_GPU_ENABLE=1"
    return None


def _why_not_shm(ends: Ends) -> str | None:
    if ends.source_is_gpu:
        return "the sender's KV memory lies on a GPU and cannot be mapped here"
    return _why_not_mapped(ends)


def _why_not_mapped(ends: Ends) -> str | None:
    if not ends.is_one_host:
        return "the engines are on two hosts and the sender's KV memory cannot be mapped here"
    return None if ends.can_open else "the sender's KV memory cannot be mapped here"


def fastest(setting: str, ends: Ends) -> tuple[str | None, dict[str, str]]:
    """The transport to use, None if ``setting`` (of `SETTINGS`) cannot be had, and why faster ones cannot.

    ``auto`` never takes ``nixl`` (docs/decisions/0053-nixl-is-asked-for.md).
    """
    reasons: dict[str, str] = {}
    for transport in AUTOMATIC if setting == AUTO else (setting,):
        reason = why_not(transport, ends)
        if reason is None:
            return transport, reasons
        reasons[transport] = reason
    return None, reasons


def missing_transport(setting: str) -> str:
    """Say in one line what a transport needs that is not installed for this interpreter; empty: nothing."""
    return missing_extra(f'transport = "{NIXL}"', NIXL, NIXL) if setting == NIXL else ""


def has_checksums(transport: str, setting: bool | None, num_hosts: int) -> bool:
    """Return whether KV blocks carry checksums by this transport. None: they do where they cross hosts unprotected.

    CURVE authenticates what goes through ZeroMQ; of NCCL's and NIXL's traffic nobody would notice a changed bit.
    """
    return setting if setting is not None else transport in (NCCL, NIXL) and num_hosts > 1
