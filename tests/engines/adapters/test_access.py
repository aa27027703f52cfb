"""From which folders adapters are read."""

from pathlib import Path

import pytest

from engines.adapters.access import AdapterFolders, named
from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from mesh.topology.parse import load
from tests.engines.adapters.writing import write_adapter
from tests.engines.torch_engine.conftest import tiny as tiny

TOPOLOGY = """
[services.chat]
model = "{model}"
[services.sql]
base = "chat"
adapter = "named"
[engines.one]
[adapters]
folder = "more"
"""


@pytest.fixture
def root(tmp_path: Path, tiny: Path) -> Path:
    """With an adapter of the file, one that may be added, and one elsewhere."""
    (tmp_path / "mesh.toml").write_text(TOPOLOGY.format(model=tiny))
    for folder in ("named", "more/good", "elsewhere"):
        write_adapter(tmp_path / folder, ModelConfig.load(tiny))
    return tmp_path


@pytest.fixture
def folders(root: Path) -> AdapterFolders:
    return AdapterFolders(load(root / "mesh.toml"))


def test_those_of_the_topology_and_those_below_its_folder_are_read(root: Path, folders: AdapterFolders):
    for folder in ("named", "more/good"):
        adapter = named("sql", AdapterFolder.read(root / folder))
        assert folders.read(adapter).digest == adapter.digest
    assert folders.resolve("good") == folders.resolve(str(root / "more/good")) == str(root / "more/good")


OUTSIDE = ["../elsewhere", "good/../../elsewhere", "/etc", "", ".", "..", "\0", "good\0", "link"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_else_is(root: Path, folders: AdapterFolders, path: str):
    (root / "more/link").symlink_to(root / "elsewhere")
    with pytest.raises(ModelError, match="is not below the folder of"):
        folders.resolve(path)


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_files_that_are_links_to_elsewhere_are_not_read(root: Path, folders: AdapterFolders, name: str):
    (root / "more/good" / name).unlink()
    (root / "more/good" / name).symlink_to(root / "elsewhere" / name)
    with pytest.raises(ModelError, match="is not below the folder of"):
        folders.resolve("good")


def test_a_folder_that_is_not_there_is_said_so(folders: AdapterFolders):
    with pytest.raises(ModelError, match="is no folder below"):
        folders.resolve("missing")


def test_engines_ask_again(root: Path, folders: AdapterFolders, tiny: Path):
    with pytest.raises(ModelError, match="neither in this topology nor below"):
        folders.read(named("x", AdapterFolder.read(root / "elsewhere")))
    adapter = named("good", AdapterFolder.read(root / "more/good"))
    write_adapter(root / "more/good", ModelConfig.load(tiny), seed=1)
    with pytest.raises(ModelError, match="have changed since good was added"):
        folders.read(adapter)


def test_without_such_a_table_none_is_added(root: Path):
    text = (root / "mesh.toml").read_text().partition("[adapters]")[0]
    folders = AdapterFolders(load(root / "mesh.toml", text))
    with pytest.raises(ModelError, match="this deployment adds no adapters"):
        folders.resolve("good")
