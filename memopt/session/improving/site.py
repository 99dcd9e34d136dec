"""The code around a hot address in the live process, and what can be told from it without stopping anything.

Invariant: code is seen as it was before loops of it were replaced, and a loop around a replaced one is no candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from memopt.cfg.flowgraph import flow_around
from memopt.cfg.inlining import CallLinkage
from memopt.cfg.natural_loops import entered_in_the_middle, find_loops, innermost_loop_at, with_headers
from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Symbols
from memopt.ir.graph import FlowGraph, Kind, Loop, LoopForest
from memopt.ir.operations import Block, Compute, Store
from memopt.ir.reasons import Reason, Rejected
from runtime.patching.install import unpatched
from runtime.target.memory import Memory, mapping_at, mappings

_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv", "fma", "fms", "fnma", "fnms", "fsqrt"))

_PACKED = re.compile(r"v?(?:(?:add|sub|mul|div|min|max|sqrt|fn?m\w+)p[sd]|p(?:add|sub|mul|min|max)\w+) ([xyz])mm")
_REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}

_MOST_CALLS = 16  # of one function
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """The code around a hot address. ``loops``: candidates from the outermost inwards; ``bias``: link-time
    addresses plus this are run-time addresses. ``text``: the executable mapping. ``links``: how the copies of called
    functions hang together with the rest of the graph. ``views``: for a candidate that is no natural loop, or holds a
    cycle that is none, the loops as seen from its header, which may be that of another candidate as well."""

    path: str
    text: tuple[int, int]
    bias: int
    function: str
    graph: FlowGraph
    forest: LoopForest
    loops: tuple[Loop, ...]
    links: CallLinkage = field(default_factory=CallLinkage)
    views: Mapping[Loop, LoopForest] = field(default_factory=dict)

    def straight_line(self) -> Ranges:
        """The code that is in no loop."""
        inside = {b for loop in self.forest.loops for b in loop.blocks}
        return tuple((b, block.end) for b, block in self.graph.blocks.items() if b not in inside)

    def decided(self, loop: Loop) -> tuple[Loop, Ranges]:
        """What has been decided together with ``loop``, one of ``loops``: the code of the outermost candidate but for
        other loops beside ``loop``, which may be candidates yet; and the outermost one without any of these."""
        beside = {b for x in self.forest.loops if not x.blocks & loop.blocks for b in x.blocks}
        nest = next((x for x in self.loops if not x.blocks & beside), loop)
        return nest, tuple((b, self.graph.blocks[b].end) for b in self.loops[0].blocks - beside)


def find_site(pid: int, address: int) -> Site:
    """Loops around ``address`` in the live process, if there are any."""
    mapping = mapping_at(mappings(pid), address)
    if mapping is None or not mapping.executable:
        raise Rejected(Reason.ENDED, f"{address:#x} is not mapped any more")
    bias, function, extent, path = 0, "", None, f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"
    try:
        with Image(path if mapping.path.endswith(" (deleted)") else mapping.path) as image:
            bias = image.load_bias(mapping.start, mapping.offset)
            known = Symbols(image).function_at(address - bias)
            if known is not None:
                function, extent = known.shown if known.name else "", (known.start + bias, known.end + bias)
    except (ElfError, OSError):
        pass  # code without a readable file: the flow graph is found from the address itself
    with unpatched(pid) as code:
        graph = flow_around(code.read_some, address, (mapping.start, mapping.end), (extent,) if extent else ())
        replaced = {patch.address for patch in code.patches}
    forest = find_loops(graph)
    loops, views = candidates(forest, address)
    loops = tuple(x for x in loops if not x.blocks & replaced  # inside an instruction is no place to patch:
                  and not graph.blocks[x.header].repeats)
    return Site(mapping.path, (mapping.start, mapping.end), bias, function, graph, forest, loops, views=views)


def candidates(forest: LoopForest, address: int) -> tuple[tuple[Loop, ...], dict[Loop, LoopForest]]:
    """The loops around ``address`` from the outermost inwards, and the loops as seen from those that are no natural
    loops, or hold cycles that are none."""
    middle = entered_in_the_middle(forest, address)
    if middle is None:
        inner = innermost_loop_at(forest, address)
        found = [with_headers(forest, loop) for loop in forest.chain(inner)] if inner is not None else []
    else:
        block = middle[0].graph.block_at(address)
        around = (loop for loop in forest.loops if block is not None and block.start in loop.blocks)
        found = [*(with_headers(forest, loop) for loop in around), middle]
    found.sort(key=lambda x: -len(x[1].blocks))
    return tuple(loop for _, loop in found), {loop: view for view, loop in found if view is not forest}


def calls_of(pid: int, site: Site) -> tuple[int, ...]:
    """Where the program or library calls the function of ``site`` by its address."""
    from memopt.x86.relocate import callers

    memory = Memory(pid)
    try:
        return tuple(callers(memory.read, site.text, site.graph.entry))
    finally:
        memory.close()


def calling(pid: int, site: Site) -> Site | None:
    """The code around the calls of ``site``'s function, when all of them are in one loop of one function: what is
    called there is part of that loop (memopt.cfg.inlining)."""
    calls = calls_of(pid, site) if site.function else ()
    if not 0 < len(calls) <= _MOST_CALLS:
        return None
    try:
        around = find_site(pid, calls[0])
    except Rejected:
        return None
    inner = around.loops[-1].blocks if around.loops else frozenset()
    blocks = [around.graph.block_at(call) for call in calls]
    return around if all(block is not None and block.start in inner for block in blocks) else None


def isolated(pid: int, site: Site, loop: Loop) -> tuple[Site, Loop]:
    """``loop`` among the loops as seen from its header, with what it calls as part of it, and without calls that it
    makes only in exceptional iterations, where that is possible."""
    from memopt.cfg.cold_calls import calls_out, without_cold_calls

    site = replace(site, forest=site.views.get(loop, site.forest))
    if not any(site.graph.blocks[b].kind is Kind.CALL for b in loop.blocks):
        return site, loop
    site, loop = _joined(pid, site, loop)
    if not any(calls_out(site.graph.blocks[b]) for b in loop.blocks):
        return site, loop
    found = without_cold_calls(site.graph, loop)
    return (site, loop) if found is None else (replace(site, forest=found[0]), found[1])


def _joined(pid: int, site: Site, loop: Loop) -> tuple[Site, Loop]:
    """``loop`` with copies of the functions it calls."""
    from memopt.cfg.inlining import inlined
    from memopt.session.improving.callees import Callees

    memory = Memory(pid)
    try:
        graph, links = inlined(site.graph, loop.blocks,
                               Callees(memory, tuple(mappings(pid)), site.text, site.path, site.bias))
    finally:
        memory.close()
    forest = find_loops(graph)
    found = next((x for x in forest.loops if x.header == loop.header), None)
    return (site, loop) if found is None else (replace(site, graph=graph, forest=forest, links=links), found)


def vector_bytes(site: Site, loop: Loop) -> int:
    """Of the widest vectors that ``loop`` computes with, 0 where it computes with single numbers."""
    registers = (_PACKED.match(f"{i.mnemonic} {i.operands_text}")
                 for start in loop.blocks for i in site.graph.blocks[start].instructions)
    return max((_REGISTER_BYTES[found[1]] for found in registers if found), default=0)


def screen(site: Site, loop: Loop) -> Callable[[int], Block]:
    """What can be told from the code alone: Rejected for calls, indirect jumps, nothing to compute.

    Returns what gives the operations of a basic block by its address, each worked out once.
    """
    from memopt.cfg.cold_calls import calls_out

    for start in sorted(loop.blocks):
        block = site.graph.blocks[start]
        if calls_out(block):
            raise Rejected(Reason.CALL, f"at {block.instructions[-1].address:#x}")
        if block.kind is Kind.INDIRECT:
            raise Rejected(Reason.INDIRECT_JUMP, f"at {block.instructions[-1].address:#x}")
    _check_direction(site, loop)
    from memopt.x86.semantics import lift_block

    @cache
    def operations(address: int) -> Block:
        return site.links.block(address, lambda real: lift_block(site.graph.blocks[address].code, real))

    refused = None
    for start in sorted(loop.blocks):
        try:
            if _computes(operations(start)):
                return operations
        except Rejected as rejected:  # perhaps it is never run
            refused = refused or rejected
    raise refused or Rejected(Reason.NO_PLAN, "nothing is computed from memory")


def _check_direction(site: Site, loop: Loop) -> None:
    """String instructions go upwards: the direction flag is clear when a function is entered (System V ABI, 3.2.2), and
    Rejected unless the function leaves it alone."""
    if any(site.graph.blocks[b].repeats for b in loop.blocks):
        for instruction in (i for block in site.graph.blocks.values() for i in block.instructions):
            if instruction.mnemonic in ("std", "popf", "popfq"):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction.mnemonic} at {instruction.address:#x}")


def _computes(block: Block) -> bool:
    """Whether a block does floating-point arithmetic or stores."""
    return any(isinstance(o, Store) or (isinstance(o, Compute) and o.operator in _ARITHMETIC)
               for o in block.operations)
