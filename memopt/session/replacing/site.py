"""The stage find: the code around a hot address in the live process, its loops, and which of them are candidates.

Example: 0x401150 lies in the innermost of three loops of ``multiply``: the candidates are these three, the outermost
first. In: the process's memory, read while it runs. Out: a ``Site``; for one of its candidates a ``LoopCode``, ready to
be lifted, or Rejected where the code alone shows that it cannot be replaced. Code is seen as it was before loops of it
were replaced, in the process or in its file, and a loop around a replaced one is no candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING

from memopt.cfg.flowgraph import flow_around
from memopt.cfg.inlining import CallLinkage
from memopt.cfg.natural_loops import entered_in_the_middle, find_loops, innermost_loop_at, with_headers
from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.original import Original, original_of
from memopt.elf.symbols import Symbols
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind, Loop, LoopForest
from memopt.ir.operations import Block, Compute, Store
from memopt.ir.reasons import Reason, Rejected
from memopt.report.model import Code
from memopt.session.replacing.process import Process
from runtime.patching.install import unpatched
from runtime.target.memory import Mapping, Memory, mapping_at, mappings

if TYPE_CHECKING:
    from memopt.session.replacing.callees import Callees

_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv", "fma", "fms", "fnma", "fnms", "fsqrt"))

_PACKED = re.compile(r"v?(?:(?:add|sub|mul|div|min|max|sqrt|fn?m\w+)p[sd]|p(?:add|sub|mul|min|max)\w+) ([xyz])mm")
_REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}

_MOST_CALLS = 16  # of one function
Ranges = tuple[tuple[int, int], ...]
Opened = Callable[[], AbstractContextManager["Callees"]]
"""The calls of a mapping, once they are needed: most loops call nothing."""


@dataclass(frozen=True, slots=True)
class Site:
    """The code around a hot address."""

    path: str  # of the file that the code is in
    text: tuple[int, int]  # the executable mapping
    bias: int  # link-time addresses plus this are run-time addresses
    function: str  # its name, "" if it is not known
    graph: FlowGraph
    forest: LoopForest
    loops: tuple[Loop, ...]  # candidates, from the outermost inwards
    links: CallLinkage = field(default_factory=CallLinkage)  # of the copies of called functions with the rest of graph
    # For a candidate that is no natural loop, or holds a cycle that is none: the loops as seen from its header, which
    # may be the header of another candidate as well.
    views: MappingOf[Loop, LoopForest] = field(default_factory=dict)
    extent: tuple[int, int] | None = None  # of the function, from symbols or unwind tables
    original: Original | None = None  # of a file that memopt has rewritten: the code as it was

    def code_at(self, address: int) -> Code | None:
        """Where the code at ``address`` is, for the report."""
        return Code(self.path, address - self.bias) if self.path.startswith("/") else None

    def straight_line(self) -> Ranges:
        """The ranges of the code that is in no loop."""
        inside = {b for loop in self.forest.loops for b in loop.blocks}
        return tuple((b, block.end) for b, block in self.graph.blocks.items() if b not in inside)

    def decided(self, loop: Loop) -> tuple[Loop, Ranges]:
        """The nest that is decided together with the candidate ``loop``, and the ranges of its code.

        Loops beside ``loop`` may still be candidates. So the nest is the outermost candidate without such loops, and
        the ranges are those of the outermost candidate without the code of such loops."""
        beside = {b for x in self.forest.loops if not x.blocks & loop.blocks for b in x.blocks}
        nest = next((x for x in self.loops if not x.blocks & beside), loop)
        return nest, tuple((b, self.graph.blocks[b].end) for b in self.loops[0].blocks - beside)

    def exits(self, loop: Loop) -> frozenset[int]:
        """The addresses where the program goes on behind ``loop``. Exits from inlined functions are left out: their
        code in the graph is a copy that never runs."""
        return frozenset(out for _, out in loop.exits if self.text[0] <= out < self.text[1])


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A loop that can be lifted. ``site``: as seen from the loop's header, with copies of the functions it calls in the
    flow graph; ``operations``: the semantics of a basic block, by its address; ``roots``: see
    memopt.cfg.cold_calls.root_exits."""

    site: Site
    loop: Loop
    operations: Callable[[int], Block]
    roots: frozenset[int] = frozenset()

    @property
    def exits(self) -> frozenset[int]:
        return self.site.exits(self.loop)

    @property
    def ranges(self) -> Ranges:
        """The ranges of the loop's code."""
        return tuple((b, self.site.graph.blocks[b].end) for b in self.loop.blocks)

    @property
    def vector_bytes(self) -> int:
        return vector_bytes(self.site, self.loop)


def find_site(pid: int, address: int) -> Site:
    """The code around ``address`` in the live process. Raises Rejected(ENDED) where nothing executable is mapped
    there."""
    mapping = mapping_at(mappings(pid), address)
    if mapping is None or not mapping.executable:
        raise Rejected(Reason.ENDED, f"{address:#x} is not mapped any more")
    path, bias, function, extent = f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", 0, "", None
    original = None
    try:
        with Image(path if mapping.path.endswith(" (deleted)") else mapping.path) as image:
            bias, function, extent = _function(image, mapping, address)
            original = original_of(image, bias)
    except (ElfError, OSError):
        pass  # code without a readable file: the flow graph is found from the address itself
    with unpatched(pid) as code:
        return site_from(mapping, bias, function, extent, address, code.read_some,
                         {patch.address for patch in code.patches}, original)


def changed(pid: int, site: Site) -> bool:
    """Whether the code of ``site`` is another than when it was read: a plug-in was exchanged, or code was patched."""
    with unpatched(pid) as code:
        def read(at: int, size: int) -> bytes:
            found = code.read_some(at, size)
            return found if site.original is None else site.original.restored(at, found)

        return any(read(block.start, block.end - block.start) != b"".join(i.bytes for i in block.instructions)
                   for block in site.graph.blocks.values())


def site_in_file(mapping: Mapping, address: int) -> Site | None:
    """The code around ``address`` as the file at ``mapping`` has it, for a process that has ended; None where it
    cannot be read."""
    try:
        with Image(mapping.path) as image:
            bias, function, extent = _function(image, mapping, address)

            def read(at: int, size: int) -> bytes:
                try:
                    return image.read(image.offset_of(at - bias), min(size, mapping.end - at))
                except ElfError:
                    return b""

            return site_from(mapping, bias, function, extent, address, read, set(), original_of(image, bias))
    except (ElfError, OSError, Rejected):
        return None


def _function(image: Image, mapping: Mapping, address: int) -> tuple[int, str, tuple[int, int] | None]:
    """The bias of ``mapping``, and name and extent of the function at ``address``, as far as they are known."""
    bias = image.load_bias(mapping.start, mapping.offset)
    original = original_of(image, bias)
    version = original.version_at(address) if original is not None else None
    if version is not None:
        return bias, version.function, (version.code[0] + bias, version.code[1] + bias)
    known = Symbols(image).function_at(address - bias)
    if known is None:
        return bias, "", None
    return bias, known.shown if known.name else "", (known.start + bias, known.end + bias)


def site_from(mapping: Mapping, bias: int, function: str, extent: tuple[int, int] | None, address: int,
              read: Callable[[int, int], bytes], replaced: set[int], original: Original | None = None) -> Site:
    """The code around ``address`` as ``read`` gives it. ``replaced``: headers of loops that were replaced.
    ``original``: of a rewritten file; the code of its versions has no candidates."""
    graph = flow_around(read if original is None else lambda at, size: original.restored(at, read(at, size)), address,
                        (mapping.start, mapping.end), (extent,) if extent else ())
    forest = find_loops(graph)
    loops, views = candidates(forest, address)
    if original is not None:
        replaced = replaced | original.headers
        loops = () if address in original.added else loops
    loops = tuple(x for x in loops if not x.blocks & replaced  # inside an instruction is no place to patch:
                  and not graph.blocks[x.header].repeats)
    return Site(mapping.path, (mapping.start, mapping.end), bias, function, graph, forest, loops, views=views,
                extent=extent, original=original)


def candidates(forest: LoopForest, address: int) -> tuple[tuple[Loop, ...], dict[Loop, LoopForest]]:
    """The loops around ``address`` from the outermost inwards, and ``Site.views`` of them."""
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
    """The addresses of the direct calls of ``site``'s function in its mapping."""
    from memopt.x86.relocate import callers

    memory = Memory(pid)
    try:
        return tuple(callers(memory.read, site.text, site.graph.entry))
    finally:
        memory.close()


def calling(pid: int, site: Site) -> Site | None:
    """The code around the calls of ``site``'s function, if all of them are in one loop of one function; else None.

    The function then becomes a part of that loop by inlining (memopt.cfg.inlining)."""
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


@contextmanager
def callees_in(pid: int, site: Site, *, by_name: bool = False) -> Iterator[Callees]:
    """The calls of the mapping of ``site`` in the live process. ``by_name``: see ``Callees``."""
    from memopt.session.replacing.callees import Callees, FileLinkage

    memory = Memory(pid)
    try:
        yield Callees(memory, tuple(mappings(pid)), site.text, FileLinkage(site.path, site.bias), by_name)
    finally:
        memory.close()


def isolated(site: Site, loop: Loop, opened: Opened) -> tuple[Site, Loop]:
    """``loop``, and its site as seen from its header: with the functions that it calls inlined where possible, and
    without calls in exceptional iterations (memopt.cfg.cold_calls) where that is possible."""
    from memopt.cfg.cold_calls import calls_out, without_cold_calls

    site = replace(site, forest=site.views.get(loop, site.forest))
    if not any(site.graph.blocks[b].kind is Kind.CALL for b in loop.blocks):
        return site, loop
    site, loop = _joined(site, loop, opened)
    if not any(calls_out(site.graph.blocks[b]) for b in loop.blocks):
        return site, loop
    found = without_cold_calls(site.graph, loop)
    return (site, loop) if found is None else (replace(site, forest=found[0]), found[1])


def loop_code(process: Process, site: Site, loop: Loop) -> LoopCode:
    """``loop``, a candidate of ``site``, ready to be lifted. Raises Rejected where the code alone, or the process, says
    that it cannot be replaced."""
    from runtime.target.eligibility import check_process

    with process.timer.stage("find"):
        if not site.path.startswith("/") or site.path.startswith("/memfd:"):
            raise Rejected(Reason.NO_ROOM, "the code is in memory without a file, where a program may change it at any "
                                           "time, under the patch as well")
        code = code_of(site, loop, lambda: callees_in(process.pid, site, by_name=process.movable),
                       movable=process.movable)
        check_process(process.pid)
    return code


def code_of(site: Site, loop: Loop, opened: Opened, *, movable: bool = False) -> LoopCode:
    """``loop``, a candidate of ``site``, ready to be lifted; raises Rejected from the code alone. ``movable``: see
    ``screen``."""
    site, loop = isolated(site, loop, opened)
    operations = screen(site, loop, movable=movable and site.bias != 0)
    return LoopCode(site, loop, operations, _roots(site, loop, operations, opened))


def _roots(site: Site, loop: Loop, operations: Callable[[int], Block], opened: Opened) -> frozenset[int]:
    from memopt.cfg.cold_calls import RETURNING, root_exits

    if not any(site.graph.blocks[t].kind is Kind.CALL for t in site.graph.blocks.keys() - loop.blocks):
        return frozenset()
    with opened() as callees:
        return root_exits(site.graph, loop, operations, lambda call: callees.name(call) in RETURNING)


def _joined(site: Site, loop: Loop, opened: Opened) -> tuple[Site, Loop]:
    """``loop`` with the functions it calls inlined; as it is where it is no loop any more then."""
    from memopt.cfg.inlining import inlined

    with opened() as callees:
        graph, links = inlined(site.graph, loop.blocks, callees)
    forest = find_loops(graph)
    found = next((x for x in forest.loops if x.header == loop.header), None)
    return (site, loop) if found is None else (replace(site, graph=graph, forest=forest, links=links), found)


def vector_bytes(site: Site, loop: Loop) -> int:
    """The size of the widest vectors that ``loop`` computes with, 0 where it computes with scalars."""
    registers = (_PACKED.match(f"{i.mnemonic} {i.operands_text}")
                 for start in loop.blocks for i in site.graph.blocks[start].instructions)
    return max((_REGISTER_BYTES[found[1]] for found in registers if found), default=0)


def screen(site: Site, loop: Loop, *, movable: bool = False) -> Callable[[int], Block]:
    """The semantics of the basic blocks of ``loop``, by their addresses; each is worked out once, when it is needed.
    ``movable``: addresses in the file are distances from the loop's header.

    Raises Rejected from the code alone: CALL, INDIRECT_JUMP, NO_PLAN where nothing is computed, and what the semantics
    of instructions raise.
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

    origin = loop.header if movable else None

    @cache
    def operations(address: int) -> Block:
        return site.links.block(address, lambda real: lift_block(site.graph.blocks[address].code, real, origin))

    refused = None
    for start in sorted(loop.blocks):
        try:
            if _computes(operations(start)):
                return operations
        except Rejected as rejected:  # perhaps it is never run
            refused = refused or rejected
    raise refused or Rejected(Reason.NO_PLAN, "nothing is computed from memory")


def _check_direction(site: Site, loop: Loop) -> None:
    """String instructions must go upwards. The direction flag is clear at the entry of a function (System V ABI,
    3.2.2); raises Rejected where the function may set it."""
    if any(site.graph.blocks[b].repeats for b in loop.blocks):
        for instruction in (i for block in site.graph.blocks.values() for i in block.instructions):
            if instruction.mnemonic in ("std", "popf", "popfq"):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction.mnemonic} at {instruction.address:#x}")


def _computes(block: Block) -> bool:
    """Whether a block does floating-point arithmetic or stores."""
    return any(isinstance(o, Store) or (isinstance(o, Compute) and o.operator in _ARITHMETIC)
               for o in block.operations)
