"""Two engine processes of one model, between which a bench moves requests."""

import argparse
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.engine.under_test import add_model_argument
from bench.models.random_llama import LLAMA2_7B, SMALL, write_random_llama
from bench.peers.rounds import TOKEN_IDS, Round
from bench.transfer.engine_client import engine_processes
from mesh.process.process import make_runtime_dir
from mesh.topology.parse import load
from mesh.topology.schema import Topology, TransferSpec
from mesh.transports import SETTINGS
from mesh.wire.requests import RequestSpec, Sampling

ENDLESS = Sampling(max_tokens=10_000, seed=0, temperature=0.0, ignore_eos=True)
TOPOLOGY = """
[mesh]
name = "two-engines"
log_level = "warning"
[services.model]
model = {model}
dtype = "{dtype}"
ttft_ms = 600000
tpot_ms = 10000
[engines.first]
role = "multiplex"
device = "{device}"
kv_memory = "{kv_memory}"
{backend}
[engines.second]
role = "multiplex"
device = "{device}"
kv_memory = "{kv_memory}"
{backend}
[gateways.gateway]
[transfer]
transport = "{transport}"
migration_share = {share}
"""
RANDOM = {"llama-2-7b": LLAMA2_7B, "small": replace(SMALL, vocab=TOKEN_IDS.stop)}
VLLM = """
backend = "vllm"
python = {python}
block_size = 32
options = {{ enforce_eager = true }}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--random", choices=RANDOM, metavar="SHAPE", help="a model of random weights instead: " + " or ".join(RANDOM)
    )
    parser.add_argument("--dtype", default="float32", help="of weights and KV (default: float32)")
    parser.add_argument("--kv-memory", default="384MiB", help="of each engine")
    parser.add_argument("--transport", choices=SETTINGS, default="auto")
    parser.add_argument("--device", default="cpu", help="of both engines (default: cpu)")
    parser.add_argument("--vllm-python", help="interpreter of an environment with vLLM, for vLLM engines; else torch's")
    share = TransferSpec().migration_share
    parser.add_argument("--share", type=float, default=share, help=f"migration_share (default: {share:g})")


@contextmanager
def two_engines(arguments: argparse.Namespace) -> Iterator[Topology]:
    """Running, ``first`` and ``second``; the process of the bench is to be their gateway."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MESHSERVE_RUNTIME_DIR"] = folder
        file = Path(folder) / "topology.toml"
        model, python = arguments.model, arguments.vllm_python
        if arguments.random:
            weights = Path(folder) / "model"
            weights.mkdir()
            model = str(write_random_llama(weights, RANDOM[arguments.random], "bfloat16", arguments.device))
        backend = VLLM.format(python=json.dumps(str(Path(python).absolute()))) if python else ""
        settings = {name: getattr(arguments, name) for name in ("kv_memory", "transport", "share", "device", "dtype")}
        file.write_text(TOPOLOGY.format(model=json.dumps(model), backend=backend, **settings))
        topology = load(file)
        make_runtime_dir(topology)
        with engine_processes(topology):
            yield topology


def request(name: str, num_tokens: int) -> RequestSpec:
    """A request that decodes until it is cancelled, with a prompt of its own."""
    [prompt] = Round(1, num_tokens, 1, seed=zlib.crc32(name.encode())).prompts()
    return RequestSpec(name, "gateway", "model", prompt, ENDLESS, slo_ttft_s=600.0, slo_tpot_s=10.0)
