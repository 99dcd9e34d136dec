from __future__ import annotations

import pytest

from memopt.cfg.flowgraph import discover, flow_around, function_containing
from memopt.cfg.natural_loops import find_loops, innermost_loop_at
from memopt.ir.graph import FlowGraph, Loop
from memopt.ir.reasons import Reason, Rejected
from tests.support.binaries import Text, assemble, compile_c

BASE = 0x1000


def graph_of(source: str, start: int = BASE) -> FlowGraph:
    code = assemble(source)
    return discover(lambda a, n: code[a - BASE:a - BASE + n], start, (BASE, BASE + len(code)))


def test_graph_text() -> None:
    graph = graph_of("xor %eax, %eax; 1: add $1, %eax; cmp %edi, %eax; jne 1b; call f; ret; f: ret")
    assert str(graph) == """\
graph 0x1000
block 0x1000..0x1002 plain -> 0x1002
  0x1000 xor eax, eax
block 0x1002..0x1009 conditional -> 0x1009, 0x1002
  0x1002 add eax, 1
  0x1005 cmp eax, edi
  0x1007 jne 0x1002
block 0x1009..0x100e call -> 0x100e
  0x1009 call 0x100f
block 0x100e..0x100f return -> -
  0x100e ret"""


def test_a_block_is_split_where_a_later_jump_goes() -> None:
    graph = graph_of("nop; 1: nop; 2: nop; dec %eax; je 1b; dec %ecx; je 2b; ret")
    assert list(graph.blocks) == [0x1000, 0x1001, 0x1002, 0x1007, 0x100B]
    assert graph.blocks[0x1001].successors == (0x1002,)
    block = graph.block_at(0x1003)
    assert block is not None
    assert block.start == 0x1002
    assert graph.block_at(0x1004) is None


def test_edges_out_of_bounds_and_undecodable_code_leave_the_graph() -> None:
    graph = graph_of("je .+0x500; je 1f; ret; 1: nop; .byte 6")
    assert graph.blocks[0x1000].successors == (0x1006, 0x1500)
    assert graph.successors(0x1000) == (0x1006,)
    assert graph.blocks[0x1009].successors == (0x100A,)
    assert graph.successors(0x1009) == ()


def test_indirect_jumps_end_the_search() -> None:
    assert list(graph_of("jmp *%rax; nop").blocks) == [0x1000]


def test_nothing_to_decode_is_rejected() -> None:
    with pytest.raises(Rejected) as caught:
        graph_of(".byte 6; nop")
    assert caught.value.reason is Reason.UNSUPPORTED_INSTRUCTION


def test_endless_straight_code_is_rejected() -> None:
    with pytest.raises(Rejected) as caught:
        discover(lambda _, n: b"\x90" * n, 0, (0, 1 << 40))
    assert caught.value.reason is Reason.NOT_A_NEST


def test_short_reads_are_put_together() -> None:
    code = assemble("nop; mov $0x12345678, %eax; " * 500 + "ret")
    graph = discover(lambda a, n: code[a:a + min(n, 50)], 0, (0, len(code)))
    assert [b.end for b in graph.blocks.values()] == [len(code)]


def test_the_smallest_range_wins() -> None:
    assert function_containing(5, [(0, 100), (4, 8), (8, 9)]) == (4, 8)
    assert function_containing(8, [(4, 8)]) is None


KERNELS = """
#include <math.h>
#include <stdlib.h>
__attribute__((noinline)) void product(int n, double *a, double *b, double *c) {
  for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) for (int k = 0; k < n; k++)
    c[i*n+j] += a[i*n+k] * b[k*n+j]; }
__attribute__((noinline)) void cholesky(int n, float *a) {
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) { for (int k = 0; k < j; k++) a[i*n+j] -= a[i*n+k] * a[j*n+k]; a[i*n+j] /= a[j*n+j]; }
    for (int k = 0; k < i; k++) a[i*n+i] -= a[i*n+k] * a[i*n+k];
    a[i*n+i] = sqrtf(a[i*n+i]); } }
__attribute__((noinline)) int search(int n, int *a, int x) {
  int found = 0;
  for (int r = 0; r < n; r++) { int low = 0, high = n;
    while (low < high) { int m = (low + high) / 2; if (a[m] == x) { found++; break; }
      if (a[m] < x) low = m + 1; else high = m; } x++; }
  return found; }
int main(int c, char **v) { double *d = calloc(9000, 8); product(c, d, d + 1000, d + 2000);
  cholesky(c, (float *)d); return search(c, (int *)d, c); }
"""


def _chain(graph: FlowGraph, address: int) -> list[tuple[int, frozenset[int]]]:
    forest = find_loops(graph)
    innermost: Loop | None = innermost_loop_at(forest, address)
    return [(loop.header, loop.blocks) for loop in forest.chain(innermost)] if innermost else []


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(("name", "depth"), [("product", 3), ("cholesky", 3), ("search", 2)])
def test_compiled_nests_have_their_depth(compiler: str, level: str, name: str, depth: int) -> None:
    text = compile_c(KERNELS, compiler, level)
    forest = find_loops(discover(text.read, text.functions[name][0], text.functions[name]))
    assert max(loop.depth for loop in forest.loops) == depth
    assert not forest.irreducible


def _agreement(text: Text, name: str) -> tuple[int, int]:
    """(instructions in loops, those whose loops are found the same with nothing known of functions)."""
    function = text.functions[name]
    known = flow_around(text.read, function[0], text.bounds, [function])
    addresses = [i.address for b in known.blocks.values() for i in b.instructions if _chain(known, i.address)]
    assert addresses
    assert all(_chain(flow_around(text.read, a, text.bounds, [function]), a) == _chain(known, a) for a in addresses)
    same = [a for a in addresses if _chain(flow_around(text.read, a, text.bounds), a) == _chain(known, a)]
    return len(addresses), len(same)


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_loops_are_found_from_inside(compiler: str, level: str) -> None:
    text = compile_c(KERNELS, compiler, level)
    for name in ("product", "cholesky"):
        total, same = _agreement(text, name)
        assert same == total


def test_a_repeated_string_instruction_is_a_loop() -> None:
    graph = graph_of("nop; 1: nop; mov %edx, %ecx; rep movsq; dec %eax; jne 1b; ret")
    assert [b.successors for b in graph.blocks.values() if b.repeats] == [(0x1007, 0x1004)]
    loops = find_loops(graph).loops
    assert [(loop.header, loop.depth) for loop in loops] == [(0x1001, 1), (0x1004, 2)]


def test_string_instructions_with_narrow_addresses_do_not_count() -> None:
    assert not any(b.repeats for b in graph_of("mov %edx, %ecx; addr32 rep movsq; ret").blocks.values())
