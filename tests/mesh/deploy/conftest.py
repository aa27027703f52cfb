"""A deployment to render, and files that what is rendered has to equal. ``GOLDEN=write`` writes them anew."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mesh.deploy.deployment import Deployment, Rendering, RenderSettings, read_deployment
from mesh.deploy.targets import TARGETS
from mesh.sockets.curve import make_key_file

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
CHAT = (HERE / "chat.toml").read_text()

Read = Callable[..., Deployment]
Render = Callable[..., Rendering]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A deployment from its text, with the files that it names."""
    (tmp_path / "costs").mkdir()
    for name in ("h100.toml", "chat.toml"):
        (tmp_path / "costs" / name).write_text("# costs\n")

    def read_text(text: str = CHAT, *, with_secret: bool = False) -> Deployment:
        path = tmp_path / "chat.toml"
        path.write_text(text)
        if with_secret:
            make_key_file(tmp_path / "mesh.key")
        return read_deployment(path, with_secret=with_secret)

    return read_text


@pytest.fixture
def render(read: Read) -> Render:
    def render_text(target: str, text: str = CHAT, **settings: object) -> Rendering:
        made = RenderSettings(**{"image": "registry.example/meshserve:1", **settings})  # type: ignore[arg-type]
        return TARGETS[target](read(text, with_secret=made.with_secret), made)

    return render_text


def check_golden(target: str, rendering: Rendering, folder_of_test: str = "/nowhere") -> None:
    """The test's own folder is written as ``/chat``."""
    folder = GOLDEN / target
    files = {file.path: file.text.replace(folder_of_test, "/chat") for file in rendering.files}
    if os.environ.get("GOLDEN") == "write":
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == kept
