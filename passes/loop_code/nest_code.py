"""Code for a whole loop plan: isl's loops over macro instances, with the code of each leaf inside them.

Each leaf's code is emitted once: in place where the loops call the leaf once, as a subroutine where several places
call it (isl splits a loop into prologue, main part and epilogue).

In: a region, its plan, the slots of the symbols, the address of the scratch memory. Out: instructions in the emitter
for the iterations 0 <= outer < H. Private arrays lie in scratch memory as the plan's ``Storage`` says; the array of a
register-carried value is the frame slot of its symbol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from memopt.ir.linear import Linear
from memopt.ir.plan import LoopPlan
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import Constant, ElementType, Expression, Index, Scalar, Scop
from memopt.polyhedral.loop_ast import Block, Call, For, If, Node
from memopt.x86.instructions import Mem
from passes.loop_code.ast_code import ScanCode
from passes.loop_code.collapsing import collapsed
from passes.loop_code.leaf_code import LeafCode
from passes.loop_code.leaf_shape import date_name, leaf_shape
from passes.loop_code.macro_instances import macro_nest
from passes.loop_code.subroutine import Subroutine
from passes.vector.emitter import Emitter, Value

_ALIGNMENT = 64
_MOST_ITEMS = 12_000  # some 64 KB of code, a fifth of a second to assemble
_MOST_LOCAL_BYTES = 24 << 10


def private_bytes(scop: Scop, plan: LoopPlan) -> int:
    """The size of the plan's private arrays: bytes of scratch memory."""
    return _storage(scop, plan)[1]


def _storage(scop: Scop, plan: LoopPlan) -> tuple[dict[str, int], int]:
    """The offset of each private array in scratch memory, and the bytes of all of them."""
    addresses, end = {}, 0
    for storage in plan.storage:
        addresses[storage.array] = end
        size = prod(storage.sizes) * scop.array(storage.array).element.size
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return addresses, end


class NestCode:
    """The code generator of one loop plan.

    ``symbols``: the frame slots of live-ins, R and H; ``scratch``: the address of the scratch memory; ``frame``: the
    address of the frame. Call ``prepare``, then ``run``. Raises Rejected(NO_PLAN) where the code or its temporaries
    become too large, ``VerifyError`` where the plan does not fit the region.
    """

    def __init__(self, region: Region, plan: LoopPlan, symbols: Mapping[str, Mem], emitter: Emitter,
                 scratch: Linear, frame: Linear) -> None:
        self._plan = plan
        self._emitter = emitter
        self._symbols: dict[str, Value] = dict(symbols)
        self._nest = macro_nest(plan, region.guards)
        homes = {array: scratch + offset for array, offset in _storage(region.scop, plan)[0].items()}
        homes |= {p.array: frame + symbols[p.symbol].displacement for p in region.register_carried}
        self._shapes = [collapsed(leaf_shape(region.scop, plan, leaf, homes)) for leaf in plan.leaves]
        self._constants = _Constants(self._symbols)

    def prepare(self) -> None:
        """Code that saves the live-in vector registers that the leaves need; they still hold their values here.

        Further constants are filled in at the same place, when leaves ask for them.
        """
        self._constants.section = self._emitter.section()
        for node in dict.fromkeys(n for shape in self._shapes for n in shape.nodes if isinstance(n, Scalar)):
            self._constants.place(node)

    def run(self) -> None:
        """Code for the loops and all leaves."""
        calls = Counter(_calls(self._nest.loops))
        names = {name: self._symbols[symbol] for name, symbol in self._nest.parameters.items()}
        routines = {name: _Routine(self._emitter, len(self._plan.leaves[0].dates), name)
                    for name, count in calls.items() if count > 1}

        def call(node: Call, scan: ScanCode) -> None:
            if node.name in routines:
                routines[node.name].call(node, scan)
            else:
                self._leaf(node.name, [scan.value(argument) for argument in node.arguments])

        ScanCode(self._emitter, names, call).emit(self._nest.loops)
        for name, routine in routines.items():
            with routine.routine.body():
                self._leaf(name, list(routine.dates))

    def _leaf(self, name: str, dates: list[Value]) -> None:
        shape = self._shapes[int(name[1:])]
        names = self._symbols | {date_name(n): value for n, value in enumerate(dates)}
        LeafCode(self._emitter, self._plan.isa, shape, self._constants.place).emit(names)
        items, temporaries = len(self._emitter.code), self._emitter.local_bytes
        if items > _MOST_ITEMS or temporaries > _MOST_LOCAL_BYTES:
            raise Rejected(Reason.NO_PLAN,
                           f"the new code has at least {items} instructions (limit {_MOST_ITEMS}) "
                           f"and {temporaries} bytes of temporaries (limit {_MOST_LOCAL_BYTES})")


class _Routine:
    """A leaf that the loops call from several places: a subroutine with the dates as arguments."""

    def __init__(self, emitter: Emitter, dates: int, name: str) -> None:
        self._emitter = emitter
        self.routine = Subroutine(emitter, f"leaf_{name}")
        self.dates = tuple(emitter.slot() for _ in range(dates))

    def call(self, node: Call, scan: ScanCode) -> None:
        for place, argument in zip(self.dates, node.arguments, strict=True):
            scan.store(place, argument)
        self.routine.call()


class _Constants:
    """Constant operands in frame slots, one element each, filled by ``section`` once before the loops."""

    def __init__(self, symbols: Mapping[str, Value]) -> None:
        self._symbols = symbols
        self.section: Emitter | None = None
        self._places: dict[Expression, Mem] = {}
        self._saved: dict[tuple[str, int], Mem] = {}

    def place(self, node: Expression) -> Mem:
        if node not in self._places:
            match node:
                case Scalar():
                    self._places[node] = self._scalar(node)
                case Constant(bits, element):
                    self._places[node] = self._constant(bits, element)
                case Index(value, element):
                    self._places[node] = self._sum(value, element)
                case _:
                    raise VerifyError(f"{node} is no constant")
        return self._places[node]

    def _scalar(self, node: Scalar) -> Mem:
        assert self.section is not None
        width = 16 if node.offset + node.element.size <= 16 else 32
        key = node.register, width
        if key not in self._saved:
            number = node.register.removeprefix("xmm")
            self._saved[key] = slot = self.section.slot(width)
            if width == 16:
                self.section.op("movups", slot, f"xmm{number}")
            else:
                self.section.op("vmovups", slot, f"ymm{number}")
        slot = self._saved[key]
        return Mem(slot.base, displacement=slot.displacement + node.offset, size=node.element.size)

    def _constant(self, bits: int, element: ElementType) -> Mem:
        assert self.section is not None
        slot = self.section.slot()
        self.section.load("rax", bits - (1 << 64) if bits >> 63 else bits)
        self.section.op("mov", slot, "rax")
        return Mem(slot.base, displacement=slot.displacement, size=element.size)

    def _sum(self, value: Linear, element: ElementType) -> Mem:
        assert self.section is not None
        self.section.load("rax", value.constant)
        for symbol, factor in value.terms:
            self.section.load("rcx", self._symbols[symbol])
            self.section.scale("rcx", factor, "rdx")
            self.section.op("add", "rax", "rcx")
        slot = self.section.slot()
        self.section.op("mov", slot, "rax")
        return Mem(slot.base, displacement=slot.displacement, size=element.size)


def _calls(node: Node) -> Iterator[str]:
    match node:
        case Call(name):
            yield name
        case Block(nodes):
            for inner in nodes:
                yield from _calls(inner)
        case For():
            yield from _calls(node.body)
        case If(_, then, otherwise):
            yield from _calls(then)
            if otherwise is not None:
                yield from _calls(otherwise)

