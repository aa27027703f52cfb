"""LoRA adapters on vLLM's workers, against PEFT with transformers in float32."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engines.adapters.folder import AdapterFolder
from engines.models.files.model_config import ModelConfig
from mesh.wire.requests import Sampling
from tests.engines.adapters.writing import write_adapter
from tests.engines.contract.computers import FOLDER, Desk, Remote, random_prompts
from tests.engines.contract.conftest import vllm_python
from tests.engines.runner import Runner

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of PEFT, by transformers
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
COUNT, RANK = 6, 16
LENGTHS = (70, 3, 41, 9, 25, 33, 5)
GREEDY = Sampling(max_tokens=COUNT, seed=0, temperature=0.0)
MODEL = ModelConfig.load(FOLDER)
PATTERNS = {"alpha_pattern": {"v_proj": 5.0}}
Folders = Mapping[str, Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Of all kinds, by key: all projections, one, one of one layer, rslora, and a rank that is too large."""
    folder = tmp_path_factory.mktemp("adapters")
    return {
        "all": write_adapter(folder / "all", MODEL, seed=1, scale=0.1),
        "query": write_adapter(folder / "query", MODEL, targets=["q_proj"], seed=2),
        "one": write_adapter(folder / "one", MODEL, 1, 3, ["down_proj", "v_proj"], [1], seed=3, **PATTERNS),
        "rs": write_adapter(folder / "rs", MODEL, 16, 4, ["k_proj", "up_proj"], seed=4, scale=0.1, use_rslora=True),
        "large": write_adapter(folder / "large", MODEL, 17, seed=5),
    }


@pytest.fixture(scope="module")
def computer(tmp_path_factory: pytest.TempPathFactory, folders: Folders) -> Iterator[Remote]:
    """With the first four adapters."""
    made = Remote(str(vllm_python()), tmp_path_factory.mktemp("vllm") / "log", str(RANK))
    for key in ("all", "query", "one", "rs"):
        made.add_adapter(key, AdapterFolder.read(folders[key]))
    yield made
    made.close()


@pytest.fixture
def runner(computer: Remote) -> Runner:
    return Desk(computer, seed=1).runner()


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def prompt(number: int) -> list[int]:
    return random_prompts(LENGTHS, seed=7)[number]


def expected(model: Any, folder: Path | None, tokens: list[int], count: int = COUNT) -> list[int]:
    """What PEFT answers, greedily."""
    import peft

    adapted = model if folder is None else peft.PeftModel.from_pretrained(model, folder).eval()
    ids = torch.tensor([tokens])
    out = adapted.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, eos_token_id=None
    )
    if folder is not None:
        adapted.unload()
    answer: list[int] = out[0, len(tokens) :].tolist()
    return answer


def together(runner: Runner, keys: list[str], name: str = "") -> list[list[int]]:
    """All in one batch, a prompt in chunks among them, and those that come later beside decodes."""
    tokens = [prompt(number) for number in range(len(keys))]
    computed = [0] * len(keys)
    for step in range(COUNT + 3):
        chunks, rows = [], []
        for number, key in enumerate(keys):
            if number > 2 * step or len(tokens[number]) == LENGTHS[number] + COUNT:
                continue
            upto = min(len(tokens[number]), computed[number] + 40)
            draw = GREEDY if upto == len(tokens[number]) else None
            chunk = runner.chunk(f"{name}{number}", tokens[number][:upto], computed[number], draw, LENGTHS[number])
            chunks.append(msgspec.structs.replace(chunk, adapter=key))
            rows.append(number)
            computed[number] = upto
        for number, result in zip(rows, runner.execute(*chunks), strict=True):
            if result.token is not None:
                tokens[number].append(result.token)
    return [tokens[number][LENGTHS[number] :][:COUNT] for number in range(len(keys))]


def alone(runner: Runner, name: str, key: str, tokens: list[int]) -> int | None:
    """The token after a prompt."""
    [result] = runner.execute(msgspec.structs.replace(runner.chunk(name, tokens, 0, GREEDY), adapter=key))
    return result.token


@pytest.mark.parametrize(
    "keys",
    [["all", "", "query", "rs", "one", "all", ""], ["one"] * 7, [""] * 7, ["rs", "rs", "", "", "all", "all", "rs"]],
)
def test_each_row_of_a_batch_has_its_own_adapter(model: Any, folders: Folders, runner: Runner, keys: list[str]):
    answers = together(runner, keys, "".join(keys))
    for number, key in enumerate(keys):
        assert len(answers[number]) > 3
        wanted = expected(model, folders.get(key), prompt(number))
        assert answers[number] == wanted[: len(answers[number])], (number, key)


def test_logprobs_of_a_prompt_are_those_of_peft(model: Any, folders: Folders, runner: Runner):
    import peft

    tokens = prompt(0)
    chunk = msgspec.structs.replace(runner.chunk("logprobs", tokens, 0, GREEDY, prompt_logprobs=0), adapter="rs")
    plain = runner.chunk("plain", prompt(1), 0, GREEDY)
    result, _ = runner.execute(chunk, plain)
    adapted = peft.PeftModel.from_pretrained(model, folders["rs"]).eval()
    with torch.no_grad():
        logprobs = torch.log_softmax(adapted(torch.tensor([tokens])).logits[0], dim=-1)
    adapted.unload()
    assert result.prompt_logprobs is not None
    for position, entry in enumerate(result.prompt_logprobs[1:]):
        assert entry is not None
        assert entry.logprob == pytest.approx(logprobs[position, entry.token].item(), abs=2e-4)


def test_one_may_go_while_another_is_computed_and_come_back(
    model: Any, folders: Folders, computer: Remote, runner: Runner
):
    tokens = prompt(0)
    wanted = expected(model, folders["query"], tokens)
    answer = [alone(runner, "stays", "query", tokens)]
    computer.remove_adapter("all")
    for step in range(1, COUNT):
        so_far = [*tokens, *[int(token or 0) for token in answer]]
        chunk = runner.chunk("stays", so_far, len(so_far) - 1, GREEDY, len(tokens))
        [result] = runner.execute(msgspec.structs.replace(chunk, adapter="query"))
        answer.append(result.token)
        if step == 2:
            computer.add_adapter("all", AdapterFolder.read(folders["rs"]))  # others may have its place and its name
    assert answer == wanted
    assert alone(runner, "again", "all", tokens) == expected(model, folders["rs"], tokens)[0]
    computer.remove_adapter("all")
    computer.add_adapter("all", AdapterFolder.read(folders["all"]))


@pytest.mark.parametrize(
    ("layers", "key", "words"),
    [
        (None, "large", r"large: has rank 17, and model takes up to 16$"),
        ([MODEL.num_layers], "foreign", r"foreign: model\.layers\.\d+\.mlp\.\S+ is no projection of its own in this"),
    ],
)
def test_a_bad_one_is_refused_in_a_line_and_leaves_others_alone(
    folders: Folders, tmp_path: Path, computer: Remote, runner: Runner, layers: list[int] | None, key: str, words: str
):
    before = together(runner, ["all", "query", ""], f"before-{key}")
    folder = folders["large"] if layers is None else write_adapter(tmp_path / key, MODEL, layers=layers)
    with pytest.raises(RuntimeError, match=words) as caught:
        computer.add_adapter(key, AdapterFolder.read(folder))
    assert "\n" not in str(caught.value)
    assert together(runner, ["all", "query", ""], f"after-{key}") == before


def test_a_damaged_file_is_refused_in_a_line(tmp_path: Path, computer: Remote):
    made = AdapterFolder.read(write_adapter(tmp_path / "damaged", MODEL))
    file = tmp_path / "damaged/adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(RuntimeError, match=r"damaged: vLLM: SafetensorError: ") as caught:
        computer.add_adapter("damaged", made)
    assert "\n" not in str(caught.value)
