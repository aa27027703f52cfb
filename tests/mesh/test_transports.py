import pytest

from mesh.transports import CUDA_IPC, NCCL, NIXL, SHM, TCP, Ends, fastest, has_checksums


@pytest.mark.parametrize("transport", [CUDA_IPC, NCCL, NIXL, SHM, TCP])
@pytest.mark.parametrize("num_hosts", [1, 2])
def test_blocks_carry_checksums_where_nothing_else_protects_them_between_hosts(transport, num_hosts):
    assert has_checksums(transport, True, num_hosts)
    assert not has_checksums(transport, False, num_hosts)
    assert has_checksums(transport, None, num_hosts) == (transport in (NCCL, NIXL) and num_hosts == 2)


@pytest.mark.parametrize("is_gpu", [False, True])
def test_nixl_fits_any_engines_that_run_it_and_must_be_asked_for(is_gpu):
    apart = Ends(is_one_host=False, source_is_gpu=is_gpu, target_is_gpu=False)
    assert fastest(NIXL, apart) == (NIXL, {})
    assert fastest("auto", apart)[0] == TCP
    without = Ends(is_one_host=True, source_is_gpu=is_gpu, target_is_gpu=False, have_nixl=False)
    assert fastest(NIXL, without) == (None, {NIXL: 'not both engines run NIXL; give both transport = "nixl"'})
