"""Prompts have exactly the tokens that were asked for, and share what they are to share."""

import json
from pathlib import Path
from random import Random

import msgspec
import pytest

from bench.load.generator.wire import Api, Chat, Piece, Recipe, Shape
from bench.load.prompts.bodies import Bodies
from bench.load.prompts.tokens import LocalTokens
from bench.load.prompts.wording import WORDS, assumed, fillers, overhead, running_ids, running_words
from tests.bench.load.small import FILLERS
from tests.models.tiny_llama import write_tiny_model

TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LocalTokens:
    return LocalTokens.load(str(write_tiny_model(tmp_path_factory.mktemp("tiny"))))


class Words:
    """A tokenizer with a token for each common word, and one around each text."""

    name = "words"

    async def encode(self, text: str) -> list[int]:
        return [WORDS.index(word) if word in WORDS else 10_000 for word in text.split()]

    async def count(self, api: Api, text: str) -> int:
        return len(await self.encode(text)) + (1 if api == "completions" else 5)


def made(recipe: Recipe, number: int, shape: Shape) -> dict[str, object]:
    return json.loads(Bodies(recipe).make(number, shape))  # type: ignore[no-any-return]


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("has_text", [False, True])
async def test_prompts_are_exact_for_the_tokenizer(tiny: LocalTokens, api: Api, has_text: bool):
    pieces = await fillers(tiny)
    around = await overhead(tiny, api, pieces)
    assert around is not None
    running = await running_words(tiny, TEXT) if has_text else ()
    recipe = Recipe(api, sends_ids=False, seed=1, fillers=pieces, running=running, overhead=around)
    random = Random(3)
    for number in range(40):
        wanted = random.randint(around + 1, 300)
        body = made(recipe, number, Shape("tiny", wanted, 4))
        words = body["prompt"] if api == "completions" else body["messages"][0]["content"]  # type: ignore[index]
        assert await tiny.count(api, words) == wanted
        assert body["max_tokens"] == 4


async def test_token_ids_are_exact(tiny: LocalTokens):
    pieces = await fillers(tiny)
    running = await running_ids(tiny, TEXT)
    for runs in ((), running):
        recipe = Recipe("completions", sends_ids=True, seed=1, fillers=pieces, running=runs)
        prompts = [made(recipe, number, Shape("tiny", 100 + number, 4))["prompt"] for number in range(20)]
        assert [len(prompt) for prompt in prompts] == list(range(100, 120))  # type: ignore[arg-type]
    assert all(token in {one.ids[0] for one in running} for token in prompts[0])  # type: ignore[attr-defined]


async def test_common_words_are_found_where_they_are_single_tokens():
    found = await fillers(Words())
    assert {piece.text.strip() for piece in found} == set(WORDS)
    assert await overhead(Words(), "completions", found) == 1
    assert await overhead(Words(), "chat", found) == 5


async def test_tokens_that_do_not_add_up_are_noticed():
    class Merging(Words):
        async def count(self, api: Api, text: str) -> int:
            return len(text.split()) // 2

    assert await overhead(Merging(), "completions", assumed()) is None


def prompt_of(recipe: Recipe, number: int, shape: Shape) -> list[int]:
    return made(recipe, number, shape)["prompt"]  # type: ignore[return-value]


IDS = Recipe("completions", sends_ids=True, seed=0, fillers=FILLERS)


def test_equal_seeds_and_numbers_make_equal_prompts():
    shape = Shape("tiny", 64, 4)
    prompts = [prompt_of(IDS, number, shape) for number in range(50)]
    assert prompts == [prompt_of(IDS, number, shape) for number in range(50)]
    assert len({tuple(prompt) for prompt in prompts}) == 50
    other = msgspec.structs.replace(IDS, seed=1)
    assert prompt_of(other, 0, shape) != prompts[0]


@pytest.mark.parametrize("num_prefixes", [1, 3])
def test_beginnings_are_shared_by_as_many_as_were_asked_for(num_prefixes: int):
    recipe = msgspec.structs.replace(IDS, prefix_tokens=40, num_prefixes=num_prefixes)
    prompts = [prompt_of(recipe, number, Shape("tiny", 60, 4)) for number in range(60)]
    assert len({tuple(prompt[:40]) for prompt in prompts}) == num_prefixes
    assert len({tuple(prompt[40:]) for prompt in prompts}) == 60
    assert all(len(prompt) == 60 for prompt in prompts)
    assert len(prompt_of(recipe, 0, Shape("tiny", 25, 4))) == 25


def test_blocks_of_a_trace_are_shared_where_the_trace_says_so():
    one, two, other = (
        prompt_of(IDS, number, Shape("tiny", 1300, 4, blocks))
        for number, blocks in enumerate([(7, 8, 9), (7, 8, 4), (5, 8, 9)])
    )
    assert one[:1024] == two[:1024]
    assert one[1024:] != two[1024:]
    assert one[:512] != other[:512]
    assert [len(prompt) for prompt in (one, two, other)] == [1300] * 3
    assert len(prompt_of(IDS, 0, Shape("tiny", 700, 4, (7, 8)))) == 700


def test_given_chats_are_sent_as_they_are():
    chats = (Chat(messages=({"role": "system", "content": "Be brief."},)), Chat(prompt="Hello"))
    recipe = Recipe("chat", sends_ids=False, seed=0, chats=chats, fields={"stream": True, "top_p": 0.5})
    first, second = (made(recipe, number, Shape("tiny", 0, 9, chat=number)) for number in range(2))
    assert first["messages"] == [{"role": "system", "content": "Be brief."}]
    assert second["messages"] == [{"role": "user", "content": "Hello"}]
    assert (first["model"], first["max_tokens"], first["stream"], first["top_p"]) == ("tiny", 9, True, 0.5)


def test_pieces_know_how_many_tokens_they_have():
    assert [Piece("a").num_tokens, Piece("a", (1,)).num_tokens, Piece("ab", (1, 2)).num_tokens] == [1, 1, 2]


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path):
    from mesh.errors import UserError

    with pytest.raises(UserError, match="--tokenizer"):
        LocalTokens.load(str(tmp_path))
