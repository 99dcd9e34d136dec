"""What is told from the code around a hot address alone."""

from __future__ import annotations

import pytest

from memopt.analysis.flowgraph import discover
from memopt.analysis.loops import find_loops
from memopt.ir.reasons import Reason, Rejected
from memopt.session.site import Site, screen
from tests.support.binaries import assemble

TEXT = 0x401000
NEXT = "inc rbx; cmp rbx, r8; jne i"


def screened(body: str) -> int:
    """How many operations the loop's first block has."""
    code = assemble(f".intel_syntax noprefix\nxor ebx, ebx\ni: {body}\n{NEXT}\nret")
    graph = discover(lambda address, size: code[address - TEXT:address - TEXT + size], TEXT, (TEXT, TEXT + len(code)))
    forest = find_loops(graph)
    site = Site("", (TEXT, TEXT + len(code)), 0, "", graph, forest, forest.loops)
    return len(screen(site, forest.loops[0])(forest.loops[0].header).operations)


@pytest.mark.parametrize("body", ["mov [rdi+rbx*8], rbx", "addsd xmm0, [rdi+rbx*8]"])
def test_a_loop_that_computes(body: str) -> None:
    assert screened(body) > 3


@pytest.mark.parametrize(("reason", "body"), [
    (Reason.NO_PLAN, "add rax, [rdi+rbx*8]"),
    (Reason.ATOMIC, "lock add qword ptr [rdi+rbx*8], 1"),
    (Reason.UNSUPPORTED_INSTRUCTION, "mov rax, [rdi+rbx*8]; cpuid"),
    (Reason.CALL, "call i; mov [rdi+rbx*8], rbx"),
])
def test_a_loop_that_is_left_alone(reason: Reason, body: str) -> None:
    with pytest.raises(Rejected) as refused:
        screened(body)
    assert refused.value.reason is reason
