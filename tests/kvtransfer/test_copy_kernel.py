"""The one CUDA kernel, compiled as C++ with loops for the grid: its arithmetic, not its speed."""

import ast
import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import kvtransfer.gpu

SHIM = """
#define __global__
struct uint4 { unsigned int x, y, z, w; };
struct dim3 { unsigned int x, y, z; };
static dim3 blockIdx, blockDim, gridDim, threadIdx;
%s
extern "C" void launch(unsigned gx, unsigned gy, unsigned threads, const char* source, char* target,
                       const long long* from, const long long* to, long long words) {
    gridDim = {gx, gy, 1}; blockDim = {threads, 1, 1};
    for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
                copy_pieces(source, target, from, to, words);
}
"""


def parts(*wanted):
    """Definitions of `kvtransfer.gpu.cuda`, which cannot be imported without cupy."""
    source = Path(kvtransfer.gpu.__file__).with_name("cuda.py").read_text()
    names = {}
    for node in ast.parse(source).body:
        is_constant = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if is_constant or (isinstance(node, ast.FunctionDef) and node.name in wanted):
            exec(compile(ast.Module([node], []), "cuda.py", "exec"), names)
    return names


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernel with")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(SHIM % parts()["COPY_PIECES"])
    command = [compiler, "-O1", "-shared", "-fPIC", "-w", "-o", str(folder / "kernel.so"), str(folder / "kernel.cpp")]
    subprocess.run(command, check=True, timeout=100)
    return ctypes.CDLL(str(folder / "kernel.so")).launch


@pytest.mark.parametrize(("count", "piece_bytes"), [(1, 16), (3, 512), (5, 36864), (2, 1 << 20), (40, 65536 + 16)])
def test_pieces_arrive_and_nothing_else_is_touched(launch, count, piece_bytes):
    names = parts("grid")
    dice = np.random.default_rng(count)
    source = dice.integers(0, 256, (count + 3) * piece_bytes, np.uint8)
    target, expected = np.zeros_like(source), np.zeros_like(source)
    froms = dice.permutation(count + 3)[:count].astype(np.int64) * piece_bytes
    tos = dice.permutation(count + 3)[:count].astype(np.int64) * piece_bytes
    for first, last in zip(froms, tos, strict=True):
        expected[last : last + piece_bytes] = source[first : first + piece_bytes]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (source, target, froms, tos)]
    columns, rows = names["grid"](count, piece_bytes)
    launch(columns, rows, names["THREADS"], *pointers, ctypes.c_longlong(piece_bytes // 16))
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("count", [1, 7, 1000, 65535])
@pytest.mark.parametrize("piece_bytes", [16, 36864, 8 << 20, 128 << 20])
def test_a_launch_fills_a_gpu_but_has_no_more_blocks_than_are_of_use(count, piece_bytes):
    names = parts("grid")
    columns, rows = names["grid"](count, piece_bytes)
    useful = -(-piece_bytes // (16 * names["THREADS"] * names["WORDS_A_THREAD"]))
    assert rows == count
    assert 1 <= columns <= useful
    assert columns * rows <= names["COPY_BLOCKS"] + count
    assert columns * rows >= min(useful * count, names["COPY_BLOCKS"])
