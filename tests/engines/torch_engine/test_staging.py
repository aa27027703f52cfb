"""Staged weights are read from memory: the model that is made of them is the one in the files."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.models.store import prepared_dir
from engines.torch_engine.staging import TorchStager
from engines.torch_engine.tensors import files_of, read_tensor
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo
from mesh.wire.control import Role
from tests.models.tiny_llama import write_tiny_model

ENGINE = EngineSpec("e0", Role.DECODE, ("tiny",), staging_memory_bytes=2**30)


@pytest.fixture
def spec(tmp_path: Path) -> ServiceSpec:
    return ServiceSpec("tiny", str(write_tiny_model(tmp_path)), Slo(1.0, 0.1))


def test_staged_tensors_are_those_of_the_files_without_the_files(spec: ServiceSpec):
    stager, folder = TorchStager(ENGINE), prepared_dir(spec.model)
    files = files_of(folder)
    before = {name: read_tensor(path, name).clone() for name, path in files.items()}
    stager.stage(spec)
    for path in set(files.values()):
        path.unlink()
    read = stager.reader("tiny")
    assert all(read(path, name).equal(before[name]) for name, path in files.items())


def test_what_is_not_staged_is_read_from_its_file(spec: ServiceSpec):
    stager = TorchStager(ENGINE)
    assert stager.reader("tiny") is read_tensor
    stager.stage(spec)
    stager.unstage("tiny")
    assert stager.reader("tiny") is read_tensor


def test_a_damaged_file_takes_no_room(spec: ServiceSpec):
    [path] = set(files_of(prepared_dir(spec.model)).values())
    whole = path.read_bytes()
    stager = TorchStager(replace(ENGINE, staging_memory_bytes=len(whole)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=str(path)):
        stager.stage(spec)
    path.write_bytes(whole)
    stager.stage(spec)
