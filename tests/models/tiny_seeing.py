"""A tiny model that sees images: the files of an Idefics 3 or SmolVLM, with a tokenizer of bytes, and no weights."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

CLASSES = {"idefics3": "Idefics3ForConditionalGeneration", "smolvlm": "SmolVLMForConditionalGeneration"}
EDGE, LONGEST = 32, 64  # pixels: of a tile, and of an image before it is cut
SPECIAL = ("<|begin|>", "<|end|>")
MARKERS = (
    "<image>", "<fake_token_around_image>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip
FIRST_MARKER = 256 + len(SPECIAL)
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}:"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
TEXT = {
    "model_type": "llama", "vocab_size": 272, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 2048,
    "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": EDGE,
    "patch_size": 8,
}  # fmt: skip
PROCESSOR = {
    "image_processor_type": "Idefics3ImageProcessor", "processor_class": "Idefics3Processor",
    "size": {"longest_edge": LONGEST}, "max_image_size": {"longest_edge": EDGE}, "do_resize": True,
    "do_rescale": True, "do_normalize": True, "do_pad": True, "do_convert_rgb": True,
    "resample": 1, "rescale_factor": 1 / 255, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip


def write_seeing_files(folder: Path, *, splits: bool = True, family: str = "idefics3") -> Path:
    """Write everything but the weights. ``family``: the ``model_type``. ``splits``: images have more tiles than one."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [CLASSES[family]], "model_type": family, "dtype": "float32",
        "image_token_id": FIRST_MARKER, "pad_token_id": 257, "scale_factor": 2, "tie_word_embeddings": False,
        "text_config": TEXT, "vision_config": {**VISION, "model_type": f"{family}_vision"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, "do_image_splitting": splits}))
    _write_tokenizer(folder)
    return folder


def write_blind_model(folder: Path) -> Path:
    """Write the files of a model that sees, without the weights that would: for engines that compute nothing."""
    write_seeing_files(folder)
    save_file({"lm_head.weight": np.zeros((1, 1), np.float32)}, folder / "model.safetensors", {"format": "pt"})
    return folder


def _write_tokenizer(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL, *MARKERS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 256)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **settings})
    )
