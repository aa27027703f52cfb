"""A tiny model that sees images, with random weights, and pictures to show it."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from engines.images.cutting import Tiles
from engines.images.form import ImageForm
from mesh.wire.images import PlacedImage
from router.images.placing import spans_of
from tests.models.tiny_seeing import write_seeing_files


def write_seeing_model(folder: Path, family: str = "idefics3") -> Path:
    """Write a model that transformers and vLLM load. Its answers depend on what it sees."""
    import torch  # which takes seconds: only for those who compute
    from transformers import AutoConfig, AutoModelForImageTextToText

    write_seeing_files(folder, family=family)
    torch.manual_seed(5)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder)).float()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.15)
    model.save_pretrained(folder)
    return write_seeing_files(folder, family=family)


def picture(width: int, height: int, seed: int = 0, kind: str = "PNG") -> bytes:
    """Return a picture that is nothing but noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return encoded(Image.fromarray(pixels), kind)


def encoded(image: Image.Image, kind: str) -> bytes:
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


def placed(folder: Path, tiles: Tiles, form: ImageForm, start: int, digest: bytes) -> tuple[list[int], PlacedImage]:
    """Return the tokens of an image, and where they take what the encoder makes. ``folder``: of the model."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens: list[int] = tokenizer.encode(form.text(tiles.rows, tiles.columns), add_special_tokens=False).ids
    num_tiles, spans = len(tiles.pixels) // (3 * form.edge**2), spans_of(tokens, form.token)
    return tokens, PlacedImage(start, len(tokens), spans, digest, num_tiles, form.edge, tiles.pixels)
