"""Fetches models of the Hugging Face hub into its own local cache."""

from collections.abc import Sequence
from pathlib import Path

from engines.models.backends import check_some_run
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.progress import Progress
from engines.models.reference import HubModel

_WANTED = ["*.json", "*.safetensors", "*.jinja"]
_UNWANTED = ["*/*.safetensors", "onnx/*", "openvino/*", "consolidated*"]  # other formats of the same weights


def fetch_from_hub(model: HubModel, progress: Progress) -> Path:
    """The snapshot's folder, from the local cache if the hub cannot be reached. Raises `ModelError`.

    A model that no backend runs is refused before its weights are fetched.
    """
    progress(f"fetching {model} from the Hugging Face hub")
    folder = _snapshot(model, ["config.json"])
    check_some_run(folder, ModelConfig.load(folder))
    return _snapshot(model, _WANTED)


def _snapshot(model: HubModel, wanted: Sequence[str]) -> Path:
    # Imported here: it is slow, and only a download needs it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            model.repository, revision=model.revision, allow_patterns=list(wanted), ignore_patterns=_UNWANTED
        )
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{model}: not in the local Hugging Face cache, and the hub cannot be reached") from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ModelError(f"{model}: {str(error).strip().splitlines()[0]}") from error
    return Path(folder)
