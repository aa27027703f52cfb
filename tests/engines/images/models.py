"""A tiny model that sees images, with random weights: Idefics 3's parts, and a tokenizer of bytes."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from engines.images.cutting import Tiles
from engines.images.form import ImageForm
from mesh.wire.images import PlacedImage, TokenSpan

BYTES = Path(__file__).parents[3] / "deploy/models/byte-llama"
CLASSES = {"idefics3": "Idefics3ForConditionalGeneration", "smolvlm": "SmolVLMForConditionalGeneration"}
EDGE, LONGEST, IMAGE_TOKEN = 32, 64, 258
MARKERS = (
    "<image>", "<fake_token_around_image>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}:"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
TEXT = {
    "model_type": "llama", "vocab_size": 272, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512,
    "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "image_size": EDGE, "patch_size": 8,
}  # fmt: skip
PROCESSOR = {
    "image_processor_type": "Idefics3ImageProcessor", "processor_class": "Idefics3Processor",
    "size": {"longest_edge": LONGEST}, "max_image_size": {"longest_edge": EDGE}, "do_resize": True,
    "do_image_splitting": True, "do_rescale": True, "do_normalize": True, "do_pad": True, "do_convert_rgb": True,
    "resample": 1, "rescale_factor": 1 / 255, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip


def write_seeing_files(folder: Path, *, splits: bool = True, family: str = "idefics3") -> Path:
    """Write everything but the weights. ``family``: the ``model_type``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [CLASSES[family]], "model_type": family, "dtype": "float32",
        "image_token_id": IMAGE_TOKEN, "pad_token_id": 257, "scale_factor": 2, "tie_word_embeddings": False,
        "text_config": TEXT, "vision_config": {**VISION, "model_type": f"{family}_vision"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, "do_image_splitting": splits}))
    tokenizer = json.loads((BYTES / "tokenizer.json").read_text())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": 258 + n, "content": name, **plain} for n, name in enumerate(MARKERS)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((BYTES / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    return folder


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


def placed(tiles: Tiles, form: ImageForm, start: int, digest: bytes) -> tuple[list[int], PlacedImage]:
    """Return the tokens of an image, one by one, and where they take what the encoder makes."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(BYTES / "tokenizer.json"))
    special = {name: 258 + number for number, name in enumerate(MARKERS)}
    tokens: list[int] = []
    text = form.text(tiles.rows, tiles.columns)
    while text:
        name = next((name for name in special if text.startswith(name)), "")
        tokens += [special[name]] if name else tokenizer.encode(text[0], add_special_tokens=False).ids
        text = text[len(name) or 1 :]
    spans, length = [], form.tile_tokens
    for at, token in enumerate(tokens):
        if token == form.token and (at == 0 or tokens[at - 1] != form.token):
            spans.append(TokenSpan(at, length))
    num_tiles = len(tiles.pixels) // (3 * form.edge**2)
    return tokens, PlacedImage(start, len(tokens), spans, digest, num_tiles, form.edge, tiles.pixels)
