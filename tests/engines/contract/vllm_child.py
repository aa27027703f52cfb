"""The vLLM executor behind a pipe: pickled questions on standard input, answers on standard output.

Arguments: the rank up to which it takes LoRA adapters, 0 for none, another model's folder and dtype, and the number of
its workers.
`MESHSERVE_VLLM_DEVICE` names a GPU for it; it computes on CPUs else.
"""

import os
import pickle
import sys

import numpy as np

from engines.vllm_engine.backend import open_memory, start_vllm
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.layout import DTYPE_BYTES
from kvtransfer.memory import KVMemory
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo
from mesh.wire.control import Role
from tests.engines.contract.computers import BLOCK_SIZE, FOLDER, NUM_BLOCKS, SERVICE

BLOCK_VALUES = 4 * 2 * 2 * BLOCK_SIZE * 32
DEFAULTS = ("0", str(FOLDER), "float32", "1")


def copy_block(memory: KVMemory | DeviceKVMemory, source: int, destination: int) -> None:
    if isinstance(memory, KVMemory):
        memory[destination] = memory[source]
        return
    content, stream = np.empty((1, memory.layout.block_bytes), np.uint8), memory.device.stream()
    memory.read([source], content, stream)
    memory.write(content, [destination], stream)


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print
    rank, folder, dtype, num_workers = [*sys.argv[1:], *DEFAULTS[len(sys.argv) - 1 :]]
    engine = EngineSpec(
        "engine", Role.MULTIPLEX, (SERVICE,), backend="vllm", block_size=BLOCK_SIZE, chunk_tokens=512,
        kv_memory_bytes=NUM_BLOCKS * BLOCK_VALUES * DTYPE_BYTES[dtype],
        options={"enforce_eager": True, "tensor_parallel_size": int(num_workers)},
        device=os.environ.get("MESHSERVE_VLLM_DEVICE", "cpu"),
    )  # fmt: skip
    spec = ServiceSpec(SERVICE, folder, Slo(10.0, 1.0), dtype=dtype)
    model = start_vllm(engine, spec, open_memory(engine, [spec]), int(rank))
    memory, adapters = model.memory, model.adapters
    assert len(memory) == NUM_BLOCKS

    def answer(what: object) -> None:
        pickle.dump(what, answers)
        answers.flush()

    answer("ready")
    while True:
        try:
            question, argument = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            if question == "compute":
                answer(model.service.compute(argument))
            elif question == "add_adapter" and adapters is not None:
                answer(adapters.add(SERVICE, *argument))
            elif question == "remove_adapter" and adapters is not None:
                answer(adapters.remove(SERVICE, argument))
            elif question == "form":
                answer(model.service.shape.form)
            elif question == "read_block" and isinstance(memory, KVMemory):
                answer(bytes(memory[argument]))
            elif question == "write_block" and isinstance(memory, KVMemory):
                block, content = argument
                memory[block] = np.frombuffer(content, np.uint8)
                answer(None)
            else:
                answer(copy_block(memory, *argument))
        except Exception as error:
            answer(RuntimeError(f"{type(error).__name__}: {error}"))
    os._exit(0)  # nothing to save, and vLLM takes its time


if __name__ == "__main__":
    main()
