"""The speed of a generated kernel alone: GFLOP/s of one matrix product on each instruction set, in this process.

    python -m bench.leaf [N] [ISA ...]

The kernel runs on buffers of this process, without a program around it, guards or a trial.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from memopt.ir.code import Placement
from memopt.ir.plan import Isa
from memopt.ir.scop import ElementType
from memopt.x86.frame import FrameLayout
from passes.contraction_code.contraction_kernel import scratch_bytes
from passes.version.kernel import kernel
from tests.support.inprocess import Buffer, NativeKernel
from tests.support.products import product, tiled

TILES = {Isa.SSE2: (6, 2), Isa.AVX2: (6, 2), Isa.AVX512: (8, 3)}
BLOCKS = {"r": 64, "v": 1032, "k": 512}


def measure(n: int, isa: Isa, element: ElementType, blocks: dict[str, int], loops: str, fuse: bool = False) -> str:
    """One line of text: GFLOP/s of the best of four runs, code size, and the time to assemble the code."""
    sizes = {"i": n, "j": n, "k": n}
    region = product("ijk", sizes, element)
    plan = tiled(region, isa, TILES[isa], blocks, loops, fuse=fuse)
    layout = FrameLayout.build(("c", "a", "b"), 8192)
    frame, scratch = Buffer(layout.size), Buffer(scratch_bytes(region, plan) + 4096)
    made = kernel(region, plan, layout, Placement(0, 0, frame.address, layout.size, 0, scratch.address, 0))
    start = time.perf_counter()
    native = NativeKernel(made.items, isa)
    assembly = time.perf_counter() - start
    dtype = np.float64 if element is ElementType.F64 else np.float32
    buffers = {name: Buffer(n * n * element.size + 4096) for name in "cab"}  # plain pages, as malloc gives
    for seed, buffer in enumerate(buffers.values()):
        np.frombuffer(buffer.view, dtype, n * n, 16)[:] = np.random.default_rng(seed).random(n * n)
    values = {name: buffer.address + 16 for name, buffer in buffers.items()} | {"H": n, "R": n + 1}
    for name, value in values.items():
        offset = layout.symbols[name]
        frame.view[offset:offset + 8] = value.to_bytes(8, "little")
    best = min(_time(native, frame.address) for _ in range(4))
    return (f"{isa.value} {element.value} n={n} {loops} {blocks} fma={fuse}: {2 * n**3 / best / 1e9:.1f} GFLOP/s,"
          f" {len(made.items)} items, {len(native.assembled.code)} bytes, {assembly * 1e3:.0f} ms assembly")


def _time(native: NativeKernel, frame: int) -> float:
    start = time.thread_time()
    native.run(frame)
    return time.thread_time() - start


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    for target in [Isa(name) for name in sys.argv[2:]] or list(Isa):
        for kind in ElementType:
            sys.stdout.write(measure(size, target, kind, BLOCKS, "vkrvr") + "\n")
    sys.stdout.write(measure(size, Isa.AVX512, ElementType.F64, BLOCKS, "vkrvr", fuse=True) + "\n")
