import pytest

from mesh.transports import CUDA_IPC, NCCL, SHM, TCP, has_checksums


@pytest.mark.parametrize("transport", [CUDA_IPC, NCCL, SHM, TCP])
@pytest.mark.parametrize("num_hosts", [1, 2])
def test_blocks_carry_checksums_where_nothing_else_protects_them_between_hosts(transport, num_hosts):
    assert has_checksums(transport, True, num_hosts)
    assert not has_checksums(transport, False, num_hosts)
    assert has_checksums(transport, None, num_hosts) == (transport == NCCL and num_hosts == 2)
