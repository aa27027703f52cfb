"""The guides that extend the product: each change applies to a copy of the tree, and its commands run there."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.docs.reader import Reader, follow

GUIDES = ("add-a-policy.md", "add-a-backend.md", "add-a-transport.md")
PACKAGES = ("mesh", "kvtransfer", "engines", "router", "simulation", "bench")
MOST_LINES = 60
pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product, with what is compiled of it."""
    copy = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package)
    return copy


@pytest.fixture
def change(request: pytest.FixtureRequest, tree: Path) -> Iterator[str]:
    """The page's change, applied to the copy while the test runs."""
    [diff] = [block.text for block in blocks((DOCS / "guides" / request.param).read_text()) if block.language == "diff"]
    apply = ["git", "apply", "--unidiff-zero", "-"]
    subprocess.run(apply, cwd=tree, input=diff, text=True, check=True)
    yield diff
    subprocess.run([*apply, "--reverse"], cwd=tree, input=diff, text=True, check=True)


@pytest.mark.parametrize(("name", "change"), list(zip(GUIDES, GUIDES, strict=True)), indirect=["change"])
def test_the_change_of_the_guide_works(name: str, change: str, tree: Path, reader: Reader):
    assert len(change.splitlines()) < MOST_LINES
    reader.use(tree)
    for block in blocks((DOCS / "guides" / name).read_text()):
        follow(reader, block)
