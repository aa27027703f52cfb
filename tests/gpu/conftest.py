"""Tests of what needs an NVIDIA GPU and the extra ``gpu``: `make gpu-check` runs them, elsewhere they are skipped."""

import importlib.util
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def why_not():
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed: pip install 'meshserve[gpu]'"
    return None


def pytest_collection_modifyitems(items):
    reason = why_not()
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def device():
    from engines.torch_engine.gpu_memory import open_gpu

    return open_gpu("cuda:0")
