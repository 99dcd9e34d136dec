"""Natural loops of a control-flow graph and how they nest.

A natural loop belongs to a back edge, one whose target (the header) dominates its source. It consists of the blocks
that reach the source without going through the header. Example: ``h: ...; b: ...; jne h`` is the loop {h, b}.

In: a flow graph. Out: a ``LoopForest``; edges that close a cycle but are no back edges are listed as irreducible. A
version may still be made for an irreducible cycle: it is entered at one block only, and seen from that block the cycle
has a header (``entered_in_the_middle``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from memopt.cfg.dominators import dominates, immediate_dominators, reverse_postorder
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.reasons import Reason, Rejected

_MOST_SPLITS = 100  # of a cycle, by taking one of its entries as the header
_MOST_VIEWS = 8  # of irreducible cycles around an address


def find_loops(graph: FlowGraph) -> LoopForest:
    """All natural loops of ``graph``; back edges to one header make one loop (Aho, Lam, Sethi, Ullman, section 9.6)."""
    order = reverse_postorder(graph)
    number = {block: index for index, block in enumerate(order)}
    dominators = immediate_dominators(graph)
    back: dict[int, list[int]] = {}
    irreducible = []
    for source in order:
        for target in graph.successors(source):
            if number[target] > number[source]:
                continue
            if dominates(dominators, target, source):
                back.setdefault(target, []).append(source)
            else:
                irreducible.append((source, target))
    bodies = {header: _body(graph, header, sources) for header, sources in back.items()}
    return LoopForest(graph, nest(graph, bodies, back), tuple(sorted(irreducible)))


def _body(graph: FlowGraph, header: int, sources: list[int]) -> frozenset[int]:
    """The header and the blocks that reach one of ``sources`` without going through the header."""
    predecessors = graph.predecessors
    body = {header}
    pending = list(sources)
    while pending:
        block = pending.pop()
        if block not in body:
            body.add(block)
            pending += predecessors[block]
    return frozenset(body)


def nest(graph: FlowGraph, bodies: dict[int, frozenset[int]], back: dict[int, list[int]]) -> tuple[Loop, ...]:
    """The loops with these ``bodies`` and back edges (sources, both by header), each after its parent.

    Precondition: two loops are disjoint or nested, as natural loops with different headers are.
    """
    parents: dict[int, int | None] = {}
    for header in bodies:
        around = [other for other in bodies if other != header and header in bodies[other]]
        parents[header] = min(around, key=lambda other: len(bodies[other]), default=None)
    children = {header: sorted(h for h in parents if parents[h] == header) for header in bodies}
    order: list[tuple[int, int]] = []  # header, depth
    pending = [(header, 1) for header in sorted((h for h in parents if parents[h] is None), reverse=True)]
    while pending:
        header, depth = pending.pop()
        order.append((header, depth))
        pending += [(child, depth + 1) for child in reversed(children[header])]
    index = {header: position for position, (header, _) in enumerate(order)}
    loops = []
    for header, depth in order:
        parent = parents[header]
        edges = tuple((source, header) for source in sorted(set(back[header])))
        loops.append(Loop(header, bodies[header], edges, _exits(graph, bodies[header]),
                          None if parent is None else index[parent], tuple(index[c] for c in children[header]), depth))
    return tuple(loops)


def _exits(graph: FlowGraph, body: frozenset[int]) -> tuple[tuple[int, int], ...]:
    return tuple((b, s) for b in sorted(body) for s in dict.fromkeys(graph.blocks[b].successors) if s not in body)


def innermost_loop_at(forest: LoopForest, address: int) -> Loop | None:
    """The innermost loop with an instruction at ``address``; None when there is no loop around it.

    Raises Rejected(IRREDUCIBLE) when ``address`` is in a cycle without a single header, inside that loop.
    """
    block = forest.graph.block_at(address)
    if block is None:
        return None
    around = [loop for loop in forest.loops if block.start in loop.blocks]
    found = max(around, key=lambda loop: loop.depth, default=None)
    if forest.irreducible:
        _check_reducible(forest, block.start, found)
    return found


def entered_in_the_middle(forest: LoopForest, address: int) -> tuple[LoopForest, Loop] | None:
    """An irreducible cycle around ``address`` as a loop whose header is one of its entries, with the loops in it.

    None when there is no such cycle. A version is entered at that block and nowhere else, so only the paths from there
    on matter to it. For them, the block is the header of a natural loop. Of several entries and cycles the one with
    the fewest loops around ``address`` is taken; a few are looked at, those of small cycles first.
    """
    block = forest.graph.block_at(address)
    views: list[tuple[int, LoopForest, Loop]] = []
    cycles = sorted(set(_cycles(forest, block.start)), key=len) if block is not None else []
    entries = ((entry, inside) for inside in cycles for entry in _entries(forest.graph, inside))
    for entry, inside in islice(entries, _MOST_VIEWS):
        view, found = _view(forest.graph, entry, inside)
        depths = [loop.depth for loop in view.loops if block is not None and block.start in loop.blocks]
        views.append((max(depths, default=0), view, found))
    return min(views, key=lambda v: (v[0], v[2].header))[1:] if views else None


def with_headers(forest: LoopForest, loop: Loop) -> tuple[LoopForest, Loop]:
    """``loop`` and its inner loops; an irreducible cycle in it gets one of its entries as a header."""
    if not any({source, target} <= loop.blocks for source, target in forest.irreducible):
        return forest, loop
    return _view(forest.graph, loop.header, loop.blocks)


def _view(graph: FlowGraph, entry: int, inside: frozenset[int]) -> tuple[LoopForest, Loop]:
    """The loop of all blocks ``inside`` with the header ``entry``, and the loops in it."""
    graph = FlowGraph(entry, {b: graph.blocks[b] for b in sorted(inside)})
    bodies = _nested_cycles(graph, inside, [_MOST_SPLITS])
    predecessors = graph.predecessors
    back = {header: [b for b in predecessors[header] if b in body] for header, body in bodies.items()}
    view = LoopForest(graph, nest(graph, bodies, back), ())
    return view, next(loop for loop in view.loops if loop.header == entry)


def _nested_cycles(graph: FlowGraph, blocks: frozenset[int], splits: list[int]) -> dict[int, frozenset[int]]:
    """The loops among ``blocks`` by header: each strongly connected component is a loop, and so on in the component
    without its header (Steensgaard, Sequentializing program dependence graphs, 1993).

    Of several entries, the header is the one that leaves the fewest loops inside. They are compared as long as
    ``splits``, one number, lasts: an interpreter with computed jumps has hundreds of entries, at every level. Soon
    after that, loops inside are not looked for any more: nothing is made of such code.
    """
    result: dict[int, frozenset[int]] = {}
    if splits[0] < -_MOST_SPLITS:
        return result
    for loop in _components(graph, blocks):
        if len(loop) > 1 or loop.issubset(graph.successors(min(loop))):
            outer = [b for b in _entries(graph, loop) or [graph.entry] if b in loop]
            if splits[0] < len(outer):
                outer = [min(outer)]
            splits[0] -= len(outer)
            inner = {b: _nested_cycles(graph, loop - {b}, splits) for b in outer}
            header = min(outer, key=lambda b: (len(inner[b]), b))
            result |= {header: loop} | inner[header]
    return result


def _components(graph: FlowGraph, blocks: frozenset[int]) -> Iterator[frozenset[int]]:
    """The strongly connected components of ``blocks`` (Sharir, A strong-connectivity algorithm, 1981)."""
    finished: list[int] = []
    seen: set[int] = set()
    pending = [(block, False) for block in blocks]
    while pending:
        block, is_done = pending.pop()
        if is_done:
            finished.append(block)
        elif block not in seen:
            seen.add(block)
            pending.append((block, True))
            pending += ((s, False) for s in graph.successors(block) if s in blocks)
    rest = set(blocks)
    for root in reversed(finished):
        if root in rest:
            found = [root]
            rest.discard(root)
            for block in found:  # found grows while it is walked through
                before = rest.intersection(graph.predecessors[block])
                rest -= before
                found += before
            yield frozenset(found)


def _cycles(forest: LoopForest, block: int) -> Iterator[frozenset[int]]:
    """The blocks of each irreducible cycle through ``block``, inside the innermost natural loop around the cycle."""
    for source, target in forest.irreducible:
        around = [loop for loop in forest.loops if {source, target} <= loop.blocks]
        outer = max(around, key=lambda loop: loop.depth, default=None)
        inside = outer.blocks - {outer.header} if outer else frozenset(forest.graph.blocks)
        if {source, target} <= inside and block in (cycle := _cycle(forest.graph, source, target, inside)):
            yield cycle


def _entries(graph: FlowGraph, cycle: frozenset[int]) -> list[int]:
    predecessors = graph.predecessors
    return [b for b in sorted(cycle) if not cycle.issuperset(predecessors[b])]


def _check_reducible(forest: LoopForest, block: int, loop: Loop | None) -> None:
    """Raises Rejected(IRREDUCIBLE) if ``loop`` (None: the graph) without its header has such a cycle at ``block``."""
    inside = loop.blocks - {loop.header} if loop else frozenset(forest.graph.blocks)
    for source, target in forest.irreducible:
        if source in inside and target in inside and block in _cycle(forest.graph, source, target, inside):
            jump = forest.graph.blocks[source].instructions[-1]
            raise Rejected(Reason.IRREDUCIBLE, f"the jump at {jump.address:#x} closes a cycle with several entries")


def _cycle(graph: FlowGraph, source: int, target: int, inside: frozenset[int]) -> frozenset[int]:
    """Blocks of ``inside`` on a path from ``target`` to ``source``."""
    forward, pending = {target}, [target]
    while pending:
        for successor in graph.successors(pending.pop()):
            if successor in inside and successor not in forward:
                forward.add(successor)
                pending.append(successor)
    predecessors = graph.predecessors
    backward, pending = {source}, [source]
    while pending:
        for predecessor in predecessors[pending.pop()]:
            if predecessor in inside and predecessor not in backward:
                backward.add(predecessor)
                pending.append(predecessor)
    return frozenset(forward & backward)
