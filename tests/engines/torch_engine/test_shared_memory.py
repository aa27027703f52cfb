"""Two models of different shapes in one KV memory: each gives the tokens that it gives alone."""

import msgspec
import pytest

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.models.files.model_config import ModelConfig
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.protocol import TransferLimits
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, StepTokens, Submit
from mesh.wire.status import DecodeCost, PrefillCost

BLOCK_SIZE = 4
COUNT = 30
PROMPTS = {"one": [3, 1, 4, 1, 5, 9, 2], "two": [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4]}


class Engine:
    """A core and an executor over real memory. ``services``: folder and dtype of each."""

    def __init__(self, num_pages, **services):
        configs = {name: ModelConfig.load(folder) for name, (folder, _) in services.items()}
        shapes = {name: kv_shape(configs[name], dtype, BLOCK_SIZE) for name, (_, dtype) in services.items()}
        self.memory = PagedMemory(PageLayout.of(shapes.values(), num_pages))
        self.executor = TorchExecutor(
            TorchService(
                name,
                folder,
                configs[name],
                dtype,
                BLOCK_SIZE,
                self.memory.pages.reshape(-1).data,
                self.memory.layout.page_bytes,
            )
            for name, (folder, dtype) in services.items()
        )
        pages = PagePool(num_pages)
        self.core = EngineCore(
            EngineSettings("e", "here", 1, Role.MULTIPLEX, Limits(8, 16), 16, "auto", 5.0, TransferLimits()),
            {name: self._service(name, shape, pages) for name, shape in shapes.items()},
            lambda peer, ref: True,
        )
        self.streams = {}

    def _service(self, name, shape, pages):
        memory = KVMemory(self.memory, shape)
        pool = block_pool(pages, BLOCK_SIZE, memory.layout.slots, memory)
        cost = LearntCost(StepCost(PrefillCost(0.0, 0.001), DecodeCost(0.005, 0.001)))
        return Service(ServiceQueue(name, pool), shape, None, frozenset(), 4096, cost)

    def submit(self, request, service, prompt, sampling):
        sampling = msgspec.structs.replace(sampling, max_tokens=COUNT, ignore_eos=True)
        spec = RequestSpec(request, "gateway", service, prompt, sampling, 60.0, 1.0)
        self.core.receive("gateway", Submit(spec, Epoch(0)), (), 0.0)

    def run(self):
        while (planned := self.core.next_batch(0.0))[0] is not None:
            for effect in (*planned[1], *self.core.finish_step(self.executor.execute(planned[0]), 0.0)):
                self.core.check_invariants()
                if isinstance(effect.message, StepTokens):
                    for delta in effect.message.deltas:
                        self.streams.setdefault(delta.request, []).extend(delta.tokens)
        assert self.core.is_idle
        return self.streams


@pytest.mark.parametrize("variant", ["qwen3", "gemma3"], indirect=True)
def test_tokens_are_those_of_each_service_alone(tiny, variant, greedy):
    """Memory for a request and a half of each: they preempt one another, and take each other's pages."""
    folders = {"one": tiny, "two": variant[0]}
    expected = {}
    for name, folder in folders.items():
        alone = Engine(40, **{name: (folder, "float32")})
        for number in range(3):
            alone.submit(f"{name}-{number}", name, PROMPTS[name] + [number], greedy())
            expected |= alone.run()
    engine = Engine(12, **{name: (folder, "float32") for name, folder in folders.items()})
    for number in range(3):
        for name in folders:
            engine.submit(f"{name}-{number}", name, PROMPTS[name] + [number], greedy())
    assert engine.run() == expected
    assert engine.core.status(0.0).preemptions_total > 0


@pytest.mark.parametrize("variant", ["qwen3", "gemma3"], indirect=True)
def test_what_another_dtype_left_in_a_page_does_no_harm(tiny, variant, greedy):
    """Requests of different lengths decode together: what the shorter lacks is masked, and was the other's float32."""
    folder = variant[0]
    services = {"one": (tiny, "float32"), "two": (folder, "bfloat16")}
    prompts = {"short": PROMPTS["two"][:2], "long": PROMPTS["two"]}
    clean, used = Engine(12, **services), Engine(12, **services)
    for number in range(3):
        used.submit(f"one-{number}", "one", PROMPTS["one"] + [number], greedy())
    used.run()
    for engine in (clean, used):
        for request, prompt in prompts.items():
            engine.submit(request, "two", prompt, greedy())
        engine.run()
    assert [used.streams[request] for request in prompts] == [clean.streams[request] for request in prompts]
