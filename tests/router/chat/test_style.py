"""What is found in the templates of real models."""

import pytest

from mesh.chat_formats import AUTO_FORMAT, NO_FORMAT, REASONING_FORMATS, TOOL_FORMATS
from router.chat.calls.formats import ALL, calls_of
from router.chat.reasoning import FORMATS as REASONINGS
from router.chat.style import remark_on_calls
from tests.router.chat.corpus import NAMES, real_template

# How calls are written, how reasoning is marked, and what templates show: tools, calls beside content, parts of
# content, developers. A dash: no way is known, or none is there.
FOUND = """
apertus              -              -       tools calls
deepseek_r1_distill  deepseek       think   calls
deepseek_r1_llama_cpp deepseek      think   tools
deepseek_r1_vllm     deepseek       think   tools calls
deepseek_v3          deepseek       think   calls
deepseek_v3_1        deepseek_v3_1  think   calls
deepseek_v3_1_vllm   deepseek_v3_1  think   tools calls
deepseek_v3_vllm     deepseek       -       tools calls
functionary_3_1      functionary    -       tools calls
gemma_2              -              -
gemma_3              -              -       parts
gemma_4              -              -       tools calls parts developer
glm_4_6              glm            think   tools calls parts
gpt_oss              harmony        harmony tools calls developer
granite_3            granite        -       tools
granite_3_3          granite        think   tools
granite_4            hermes         -       tools calls parts
hermes_2_pro_and_3   hermes         -       tools
hermes_vllm          hermes         -       tools
kimi_k2              kimi           -       tools parts
llama_3              -              -
llama_3_1            llama_json     -       tools
llama_3_1_vllm       llama_json     -       tools parts
llama_3_2            llama_json     -       tools
llama_3_2_pythonic   pythonic       -       tools
llama_4_pythonic     pythonic       -       tools calls parts
minimax_m2           minimax        think   tools calls parts
ministral_3          mistral_apart  mistral tools calls parts
mistral_nemo         mistral        -       tools
mistral_small_3_2    mistral_apart  -       tools parts
mistral_v3           mistral        -       tools parts
mistral_v3_parallel  mistral        -       tools parts
mistral_v3_tekken    mistral        -       tools
mistral_v7_tekken    -              -       parts
phi_3_5              -              -
phi_4                -              -
phi_4_mini           functools      -       tools
phi_4_reasoning      -              think
qwen2_5              hermes         -       tools calls
qwen3                hermes         think   tools calls
qwen3_2507           hermes         -       tools calls
qwen3_5              qwen_xml       think   tools calls parts
qwen3_coder          qwen_xml       -       tools calls
qwq                  hermes         think   tools calls
seed_oss             seed           seed    tools calls
smollm2              -              -
smollm3              -              think
toolace              pythonic       -       tools
"""
GUESSED = ("apertus", "gemma_4")
ROWS = {row.split()[0]: row.split()[1:] for row in FOUND.strip().splitlines()}


def test_every_template_has_a_row():
    assert sorted(ROWS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_template_tells_its_formats_and_what_it_shows(name: str):
    calls, reasoning, *shows = ROWS[name]
    real = real_template(name)
    facts, found = real.style.facts, calls_of(real.source)
    assert facts is not None
    flags = {
        "tools": facts.takes_tools, "calls": facts.takes_calls, "parts": facts.takes_parts,
        "developer": facts.takes_developer,
    }  # fmt: skip
    assert ("-" if found is None else found.name) == calls
    assert ("-" if real.style.reasoning is None else real.style.reasoning.name) == reasoning
    assert [flag for flag, is_set in flags.items() if is_set] == shows


def test_topologies_name_the_formats_that_there_are():
    assert (AUTO_FORMAT, *ALL) == TOOL_FORMATS
    assert (AUTO_FORMAT, NO_FORMAT, *REASONINGS) == REASONING_FORMATS


@pytest.mark.parametrize("name", NAMES)
def test_a_template_that_shows_tools_in_no_known_way_is_told(name: str):
    real = real_template(name)
    assert real.style.is_guessed is (name in GUESSED)
    remark = remark_on_calls(real.source)
    assert (remark is not None) is (name in GUESSED), remark
