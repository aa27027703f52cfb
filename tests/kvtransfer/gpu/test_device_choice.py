"""The transport that two engines with GPUs choose."""

import pytest

from kvtransfer.transport_choice import TransportError, choose
from mesh.transports import CUDA_IPC, NCCL, SHM, TCP
from mesh.wire.transfers import MemoryRef


# --- choice -----------------------------------------------------------------------------------------------------------
def ref(host="here", gpu=None, **device):
    from mesh.wire.transfers import DeviceRef

    there = None if gpu is None else DeviceRef(gpu, b"", **{"has_nccl": True} | device)
    return MemoryRef(host, "/proc/1/fd/1", 1, "", there)


A, B = ref(gpu="a"), ref(gpu="b")


@pytest.mark.parametrize(
    ("setting", "memory", "here", "can_open", "transport"),
    [
        ("auto", A, B, True, CUDA_IPC),
        ("auto", A, A, True, CUDA_IPC),
        ("auto", A, B, False, NCCL),
        ("auto", ref("there", "a"), B, True, NCCL),
        ("auto", ref("there", "a", has_nccl=False), B, True, TCP),
        ("auto", A, A, False, TCP),
        ("auto", ref(gpu="a", allows_two_ranks=True), ref(gpu="a", allows_two_ranks=True), False, NCCL),
        ("auto", ref(), A, True, SHM),
        ("auto", A, ref(), True, TCP),
        ("auto", ref("there"), A, True, TCP),
        ("nccl", A, B, True, NCCL),
        ("cuda-ipc", A, B, True, CUDA_IPC),
        ("shm", ref(), A, True, SHM),
        ("tcp", A, B, True, TCP),
    ],
)
def test_the_fastest_transport_that_works_is_chosen(setting, memory, here, can_open, transport):
    assert choose(setting, memory, "here", lambda _: can_open, here) == transport


@pytest.mark.parametrize(
    ("setting", "memory", "here", "can_open", "reason"),
    [
        ("cuda-ipc", A, ref(), True, "not both engines keep their KV on a GPU"),
        ("cuda-ipc", ref("there", "a"), B, True, "two hosts"),
        ("cuda-ipc", A, B, False, "cannot be mapped here"),
        ("nccl", ref(), B, True, "not both engines keep their KV on a GPU"),
        ("nccl", ref(gpu="a", has_nccl=False), B, True, "the extra gpu brings it"),
        ("nccl", A, A, True, "NCCL_MULTI_RANK_GPU_ENABLE=1"),
        ("shm", A, B, True, "lies on a GPU"),
        ("shm", None, B, True, "cannot be mapped here"),
    ],
)
def test_demanding_the_impossible_is_refused_with_the_reason(setting, memory, here, can_open, reason):
    with pytest.raises(TransportError, match=reason):
        choose(setting, memory, "here", lambda _: can_open, here)
