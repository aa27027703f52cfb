"""What each backend asks of its engines' tables, with the line of the file that is wrong."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from engines import backend_rules
from mesh.topology.backends import BACKENDS
from mesh.topology.parse import load
from mesh.topology.report import TopologyError
from mesh.topology.schema import WHOLE_PROMPTS, Scheduling, Topology

SERVICES = """[services.a]
model = "pypi:a==1/b.gguf"
[services.b]
model = "pypi:a==1/b.gguf"
"""
FIRST_LINE = SERVICES.count("\n") + 2  # of an engine's keys


def topology(folder: Path, engine: str, services: str = SERVICES) -> Topology:
    (folder / "t.toml").write_text(f"{services}[engines.e]\n{engine}\n")
    return load(folder / "t.toml")


def test_topologies_find_the_rules():
    assert backend_rules in [entry.load() for entry in entry_points(group=BACKENDS)]


@pytest.mark.parametrize(
    ("engine", "line", "fault"),
    [
        (
            'services = ["a"]\nbackend = "vllm"\nblock_size = 16', 2,
            "block_size: 16: vLLM's attention wants multiples of 32",
        ),
        (
            'services = ["a"]\nbackend = "vllm"\nblock_size = 32\n[engines.f]\nservices = ["a", "b"]', 1,
            "backend: other engines of a are not of vLLM, and cannot take its KV; use one backend for it",
        ),
        (
            'imitates = "vllm-0.12"', 0,
            "imitates: only backend = \"simulated\" imitates others, and this one has 'torch'",
        ),
        (
            'backend = "simulated"\nprofile = "h100-llama2-7b-tp1"\nimitates = "vlm-0.12"', 2,
            "imitates: unknown serving system 'vlm-0.12'; did you mean 'vllm-0.12'?",
        ),
        ("threads = 4\nmax_threads = 3", 1, "max_threads: 3: it has 4 threads at any time; take 4 or more"),
        (
            'max_threads = 2\nbackend = "simulated"\nprofile = "h100-llama2-7b-tp1"', 0,
            "max_threads: simulated engines compute with the threads that they started with; "
            'leave it out, or use backend = "torch"',
        ),
        ('max_threads = 2\ndevice = "cuda:0"', 0, "max_threads: threads do not compute on cuda:0; leave it out"),
        (
            "options = { x = 1 }", 0, "options: only backend = \"vllm\" has options, and this one has 'torch'",
        ),
        (
            'scheduling = "padded"\nrole = "multiplex"', 0,
            'scheduling: torch engines pad no batches; use "static", which computes no padding',
        ),
        (
            'services = ["a"]\nbackend = "transformers"\nscheduling = "slo"', 2,
            'scheduling: transformers computes padded static batches, and this is "slo"; use "padded", or '
            'backend = "torch"',
        ),
        (
            'services = ["a"]\nbackend = "transformers"\nstaging_memory = "1GiB"', 2,
            "staging_memory: transformers engines read no weights ahead; torch and simulated engines do",
        ),
        (
            'services = ["a"]\nbackend = "transformers"\nchunk_tokens = 64', 2,
            "chunk_tokens: 64: transformers computes prompts whole; leave it out",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path: Path, engine: str, line: int, fault: str):
    with pytest.raises(TopologyError) as caught:
        topology(tmp_path, engine)
    assert f"{tmp_path}/t.toml:{FIRST_LINE + line}: engines.e.{fault}" in caught.value.faults


@pytest.mark.parametrize("engine", ['backend = "vllm"', 'device = "cuda:0"'])
def test_kv_in_int8_is_for_torch_engines_on_processors(tmp_path: Path, engine: str):
    services = '[services.a]\nmodel = "pypi:a==1/b.gguf"\nkv_dtype = "int8"\n'
    with pytest.raises(TopologyError, match=r'torch engines on device "cpu" alone.*leave kv_dtype out of'):
        topology(tmp_path, engine, services)


@pytest.mark.parametrize("backend", ["vllm", "transformers"])
def test_int8_is_torchs_alone(tmp_path: Path, backend: str):
    services = '[services.a]\nmodel = "pypi:a==1/b.gguf"\ndtype = "int8"\n'
    with pytest.raises(TopologyError, match="int8 is a dtype of torch engines; give a float32, bfloat16 or float16"):
        topology(tmp_path, f'backend = "{backend}"\nblock_size = 32', services)


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        ('backend = "vllm"\nblock_size = 32', "has backend 'vllm', which checks no drafts; use torch, simulated"),
        ('scheduling = "static"', 'runs "static" batches, whose requests advance together; use scheduling = "slo"'),
    ],
)
def test_speculation_is_for_engines_that_check_drafts(tmp_path: Path, engine: str, fault: str):
    services = '[services.a]\nmodel = "pypi:a==1/b.gguf"\nspeculation = "prompt_lookup"\n'
    with pytest.raises(TopologyError) as caught:
        topology(tmp_path, engine, services)
    assert f"{tmp_path}/t.toml:3: services.a.speculation: engines.e {fault}" in caught.value.faults


@pytest.mark.parametrize(
    ("keys", "others", "fault"),
    [
        ('draft = "b"', "", '4: services.a.draft: writes drafts where speculation = "draft_model"; add that, or leave'),
        (
            'speculation = "prompt_lookup"\ndraft = "b"', "",
            '5: services.a.draft: speculation = "prompt_lookup" has no model that drafts; leave it out',
        ),
        (
            'speculation = "draft_model"', "",
            "4: services.a.speculation: lacks the service whose model writes the drafts; add draft, one of: b",
        ),
        (
            'speculation = "draft_model"\ndraft = "c"', "",
            "5: services.a.draft: 'c' is no other service that generates; there are: b",
        ),
        (
            'speculation = "draft_model"\ndraft = "b"', 'speculation = "draft_model"\ndraft = "a"\n',
            "5: services.a.draft: b waits for drafts itself; leave its speculation out",
        ),
        (
            'speculation = "draft_model"\ndraft = "b"', "",
            '5: services.a.draft: engines.e decodes a and has no b; give it services = ["a", "b"]',
        ),
    ],
)  # fmt: skip
def test_a_draft_model_is_another_service_of_the_same_engines(tmp_path: Path, keys: str, others: str, fault: str):
    model = 'model = "pypi:a==1/b.gguf"\n'
    services = f"[services.a]\n{model}\n{keys}\n[services.b]\n{model}{others}"
    with pytest.raises(TopologyError) as caught:
        topology(tmp_path, 'services = ["a"]\n[engines.f]\nservices = ["b"]', services)
    assert any(fault in line for line in caught.value.faults), caught.value.faults


def test_servers_of_others_speculate_as_they_were_started(tmp_path: Path):
    services = '[services.a]\nspeculation = "prompt_lookup"\n'
    with pytest.raises(TopologyError, match="only servers of others have it, and they speculate as they were started"):
        topology(tmp_path, 'url = "http://127.0.0.1:9"', services)


def test_engines_of_transformers_run_padded_batches_of_whole_prompts_unasked(tmp_path: Path):
    services = '[services.a]\nmodel = "pypi:a==1/b.gguf"\n'
    [engine] = topology(tmp_path, 'backend = "transformers"', services).engines
    assert (engine.scheduling, engine.chunk_tokens) == (Scheduling.PADDED, WHOLE_PROMPTS)


def test_what_an_engine_imitates_sets_what_its_table_does_not(tmp_path):
    lines = ('backend = "simulated"', 'profile = "h100-llama2-7b-tp1"', 'imitates = "vllm-0.12"', "max_running = 7")
    [engine] = topology(tmp_path, "\n".join(lines)).engines
    assert (engine.scheduling, engine.chunk_tokens, engine.max_running) == (Scheduling.CONTINUOUS, 8192, 7)
