"""Sites (memopt.session.replacing.site) of assembly code."""

from __future__ import annotations

from memopt.cfg.flowgraph import discover
from memopt.cfg.natural_loops import find_loops
from memopt.session.replacing.site import Site
from tests.support.binaries import assemble

TEXT = 0x401000
NEXT = "inc rbx; cmp rbx, r8; jne i"


def site_of(source: str) -> Site:
    """The site of a function of assembly code, with all its loops."""
    code = assemble(f".intel_syntax noprefix\n{source}\nret")
    graph = discover(lambda address, size: code[address - TEXT:address - TEXT + size], TEXT, (TEXT, TEXT + len(code)))
    forest = find_loops(graph)
    return Site("", (TEXT, TEXT + len(code)), 0, "", graph, forest, forest.loops)


NESTS = f"""
i:  xor ecx, ecx
j:  xor edx, edx
k:  inc rdx; cmp rdx, r8; jne k
    inc rcx; cmp rcx, r8; jne j
    xor ecx, ecx
m:  inc rcx; cmp rcx, r8; jne m
    {NEXT}
"""
