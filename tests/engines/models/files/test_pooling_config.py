import json
from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.files.pooling_config import PoolingConfig, PoolingMode


def write(folder: Path, kinds: list[str], pooling: dict[str, object], **files: object) -> None:
    modules = [
        {"idx": index, "name": str(index), "path": "" if index == 0 else f"{index}_{kind}", "type": f"models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("pooling", "mode"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, PoolingMode.CLS),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, PoolingMode.MEAN),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, PoolingMode.LAST),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 8}, PoolingMode.LAST),
        ({"pooling_mode": "mean"}, PoolingMode.MEAN),
    ],
)
def test_the_mode_is_the_one_that_is_on(tmp_path: Path, pooling: dict[str, object], mode: PoolingMode):
    write(tmp_path, ["Transformer", "Pooling"], pooling)
    assert PoolingConfig.load(tmp_path, is_encoder=True) == PoolingConfig(mode, normalises=False)


def test_the_longest_text_and_the_usual_prompt_are_read(tmp_path: Path):
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    write(
        tmp_path, ["Transformer", "Pooling", "Normalize"], {"pooling_mode_mean_tokens": True},
        sentence_bert_config={"max_seq_length": 128}, config_sentence_transformers=prompts,
    )  # fmt: skip
    wanted = PoolingConfig(PoolingMode.MEAN, normalises=True, max_tokens=128, prompt="query: ")
    assert PoolingConfig.load(tmp_path, is_encoder=True) == wanted


def test_without_files_encoders_take_the_mean_and_decoders_the_last_token(tmp_path: Path):
    assert PoolingConfig.load(tmp_path, is_encoder=True) == PoolingConfig(PoolingMode.MEAN, normalises=False)
    assert PoolingConfig.load(tmp_path, is_encoder=False) == PoolingConfig(PoolingMode.LAST, normalises=True)


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        (["Transformer", "Pooling", "Dense"], {"pooling_mode_mean_tokens": True}, "its modules are .*, Dense; a Tra"),
        (["Transformer"], {}, "its modules are Transformer; a Transformer, Pooling and perhaps Normalize"),
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "pools by pooling_mode_max_tokens; one of cls"),
        (["Transformer", "Pooling"], {}, "pools by nothing; one of cls, mean, last would do"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "pools by cls and mean; one of",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, kinds: list[str], pooling: dict[str, object], message: str
):
    write(tmp_path, kinds, pooling)
    with pytest.raises(ModelError, match=message) as caught:
        PoolingConfig.load(tmp_path, is_encoder=True)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_named(tmp_path: Path):
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(ModelError, match=r"modules\.json: Input data was truncated"):
        PoolingConfig.load(tmp_path, is_encoder=True)
