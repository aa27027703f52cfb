"""What can be said of a vLLM engine on a GPU without one."""

import pytest

from engines.vllm_engine.gpu import VISIBLE, gpu_share, see_only
from mesh.errors import UserError


@pytest.mark.parametrize(
    ("device", "visible", "left"),
    [
        ("cuda", None, "0"),
        ("cuda:3", None, "3"),
        ("cuda:1", "4,6", "6"),
        ("cuda", "GPU-5a, GPU-6b", "GPU-5a"),
        ("cuda:0", "2", "2"),
    ],
)
def test_a_process_sees_its_gpu_alone(device, visible, left):
    environ = {} if visible is None else {VISIBLE: visible}
    see_only(device, environ)
    assert environ == {VISIBLE: left}


@pytest.mark.parametrize(("device", "visible"), [("cuda:2", "4,6"), ("cuda", "")])
def test_a_gpu_that_is_not_to_be_seen_is_refused(device, visible):
    with pytest.raises(UserError, match=rf"device {device}: CUDA_VISIBLE_DEVICES={visible} shows \d GPUs"):
        see_only(device, {VISIBLE: visible})


def test_without_a_gpu_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"torch sees no GPU; .*make vllm-env"):
        gpu_share()


def test_vllm_may_use_most_of_what_is_free(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (30, 80) if device == "cuda:0" else None)
    assert gpu_share() == pytest.approx(0.9 * 30 / 80)
