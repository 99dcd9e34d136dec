"""Code for an isl syntax tree: its loops, conditions and bounds as x86-64 instructions.

Example: isl scans the macro instances of a leaf L0 by::

    for (c0 = 0; c0 <= floor((p0 - 1)/8); c0 += 1)
        if (p1 >= 8*c0)
            L0(c0);

In: the tree (``memopt.polyhedral.loop_ast``), where its parameters are, and a function that emits what a call such as
``L0(c0)`` runs. Out: instructions in the emitter.

Iterators, and all values that must survive a call, lie in frame slots: a call may clobber every register but rbp and
rsp. All arithmetic is in 64 bits and cannot overflow, because the guard bounds every symbol
(``passes.version.overflow_guards``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.polyhedral.loop_ast import Block, Call, For, If, Name, Node, Number, Operation, Term
from memopt.x86.instructions import Imm, Mem
from passes.vector.emitter import Emitter, Value, fits

_REGISTERS = ("rax", "rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
"""Evaluation stack: a term at depth n is evaluated into register n. rcx and rdx are left to divisions."""
_CONDITIONS = {"eq": "e", "le": "le", "lt": "l", "ge": "ge", "gt": "g"}
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "imul"}

Names = Mapping[str, Value]


class ScanCode:
    """Emits the loops and conditions of an isl syntax tree.

    ``names`` says where each parameter is. ``call(node, scan)`` emits what a call runs; the arguments in ``node`` are
    terms, which ``scan.value`` or ``scan.store`` evaluates.
    """

    def __init__(self, emitter: Emitter, names: Names, call: Callable[[Call, ScanCode], None]) -> None:
        self._emitter = emitter
        self._names = dict(names)
        self._call = call

    def emit(self, node: Node) -> None:
        """Code for ``node`` and all that it contains.

        Raises Rejected(NO_SCHEDULE) for expressions nested too deeply.
        """
        match node:
            case Block(nodes):
                for inner in nodes:
                    self.emit(inner)
            case Call():
                self._call(node, self)
            case If(condition, then, otherwise):
                self._if(condition, then, otherwise)
            case For():
                self._loop(node)

    def value(self, term: Term) -> Value:
        """The value of ``term``: a number or an existing slot where no code is needed, else computed into a fresh slot.
        """
        match term:
            case Number(value):
                return value
            case Name(name):
                return self._names[name]
        place = self._emitter.slot()
        self._evaluate(term, 0)
        self._emitter.op("mov", place, _REGISTERS[0])
        return place

    def store(self, place: Mem, term: Term) -> None:
        """``place = term``; clobbers all registers of the evaluation stack, rcx and rdx."""
        self._evaluate(term, 0)
        self._emitter.op("mov", place, _REGISTERS[0])

    def _loop(self, loop: For) -> None:
        emitter = self._emitter
        outer = self._names.get(loop.iterator)
        if loop.once:
            self._names[loop.iterator] = self.value(loop.first)
            self.emit(loop.body)
        else:
            position = emitter.slot()
            last = self.value(loop.last)
            again, done = emitter.fresh("scan"), emitter.fresh("scan_done")
            self.store(position, loop.first)
            self._names[loop.iterator] = position
            emitter.place(again)
            emitter.op("mov", "rax", position)
            self._compare("rax", last)
            emitter.jump(done, "g")
            self.emit(loop.body)
            emitter.op("add", position, Imm(loop.step))
            emitter.jump(again)
            emitter.place(done)
        if outer is not None:
            self._names[loop.iterator] = outer

    def _compare(self, register: str, value: Value) -> None:
        if isinstance(value, int) and not fits(value):
            self._emitter.load("rcx", value)
            self._emitter.op("cmp", register, "rcx")
        else:
            self._emitter.op("cmp", register, value)

    def _if(self, condition: Term, then: Node, otherwise: Node | None) -> None:
        emitter = self._emitter
        no, done = emitter.fresh("otherwise"), emitter.fresh("fi")
        self._unless(condition, no)
        self.emit(then)
        if otherwise is not None:
            emitter.jump(done)
        emitter.place(no)
        if otherwise is not None:
            self.emit(otherwise)
            emitter.place(done)

    def _unless(self, condition: Term, target: str) -> None:
        """Jump to ``target`` when the condition does not hold."""
        match condition:
            case Operation("and", (first, second)):
                self._unless(first, target)
                self._unless(second, target)
            case Operation("or", (first, second)):
                yes, other = self._emitter.fresh("either"), self._emitter.fresh("or")
                self._unless(first, other)
                self._emitter.jump(yes)
                self._emitter.place(other)
                self._unless(second, target)
                self._emitter.place(yes)
            case Operation(operator, (first, second)) if operator in _CONDITIONS:
                self._evaluate(first, 0)
                self._emitter.op("cmp", _REGISTERS[0], self._operand(second, 1))
                self._emitter.jump(target, _opposite(_CONDITIONS[operator]))
            case _:
                raise VerifyError(f"{condition} is no condition")

    def _operand(self, term: Term, depth: int) -> str | int | Mem:
        """``term`` as the source operand of an instruction; evaluated into ``_REGISTERS[depth]`` only where it must be.
        """
        match term:
            case Number(value) if fits(value):
                return value
            case Name(name):
                place = self._names[name]
                if isinstance(place, Mem) or fits(place):
                    return place
        self._evaluate(term, depth)
        return _REGISTERS[depth]

    def _evaluate(self, term: Term, depth: int) -> None:
        """``_REGISTERS[depth] = term``; clobbers the registers after it, rcx and rdx."""
        if depth + 1 >= len(_REGISTERS):
            raise Rejected(Reason.NO_SCHEDULE, "a loop bound has too many terms")
        emitter, register = self._emitter, _REGISTERS[depth]
        match term:
            case Number(value):
                emitter.load(register, value)
            case Name(name):
                emitter.load(register, self._names[name])
            case Operation("neg", (operand,)):
                self._evaluate(operand, depth)
                emitter.op("neg", register)
            case Operation("mul", (Number(factor), other)) | Operation("mul", (other, Number(factor))):
                self._evaluate(other, depth)
                emitter.scale(register, factor, "rcx")
            case Operation("floor" | "mod" as operator, (dividend, Number(divisor))):
                self._evaluate(dividend, depth)
                (floor_divide if operator == "floor" else modulo)(emitter, register, divisor)
            case Operation("min" | "max" as operator, (first, second)):
                self._evaluate(first, depth)
                self._evaluate(second, depth + 1)
                emitter.op("cmp", register, _REGISTERS[depth + 1])
                emitter.op("cmovg" if operator == "min" else "cmovl", register, _REGISTERS[depth + 1])
            case Operation("select", (condition, first, second)):
                self._select(condition, first, second, depth)
            case Operation(operator, (first, second)) if operator in _ARITHMETIC:
                self._evaluate(first, depth)
                emitter.op(_ARITHMETIC[operator], register, self._in_place(second, depth + 1))
            case _:
                raise VerifyError(f"{term} is no number")

    def _in_place(self, term: Term, depth: int) -> str | Mem:
        operand = self._operand(term, depth)
        if isinstance(operand, int):
            self._emitter.load(_REGISTERS[depth], operand)
            return _REGISTERS[depth]
        return operand

    def _select(self, condition: Term, first: Term, second: Term, depth: int) -> None:
        """``_REGISTERS[depth] = condition ? first : second``.

        The registers below ``depth`` are kept in slots meanwhile, because the condition is evaluated from the first
        register on.
        """
        emitter = self._emitter
        kept = [(emitter.slot(), r) for r in _REGISTERS[:depth]]
        for place, register in kept:
            emitter.op("mov", place, register)
        no, done, result = emitter.fresh("otherwise"), emitter.fresh("selected"), emitter.slot()
        self._unless(condition, no)
        self.store(result, first)
        emitter.jump(done)
        emitter.place(no)
        self.store(result, second)
        emitter.place(done)
        for place, register in kept:
            emitter.op("mov", register, place)
        emitter.op("mov", _REGISTERS[depth], result)


def _opposite(condition: str) -> str:
    return {"e": "ne", "le": "g", "l": "ge", "ge": "l", "g": "le"}[condition]


def floor_divide(emitter: Emitter, register: str, divisor: int) -> None:
    """``register = floor(register / divisor)`` with ``divisor`` > 0; clobbers rcx and rdx."""
    if divisor & (divisor - 1) == 0:
        if divisor > 1:
            emitter.op("sar", register, divisor.bit_length() - 1)
        return
    _divided(emitter, register, divisor, ("sar", "rdx", 63), ("add", "rax", "rdx"))  # - 1 if the remainder is < 0


def modulo(emitter: Emitter, register: str, divisor: int) -> None:
    """``register = register mod divisor``, in 0 .. divisor-1; clobbers as ``floor_divide``."""
    if divisor & (divisor - 1) == 0 and divisor <= 1 << 31:
        emitter.op("and", register, divisor - 1)
        return
    _divided(emitter, register, divisor,
             ("mov", "rax", "rdx"), ("sar", "rdx", 63), ("and", "rdx", "rcx"), ("add", "rax", "rdx"))


def _divided(emitter: Emitter, register: str, divisor: int, *finish: tuple[str | int, ...]) -> None:
    """Divide ``register`` by ``divisor``, rounding towards zero: quotient in rax, remainder in rdx, divisor in rcx.

    The instructions ``finish`` then compute the result in rax, which moves to ``register``.
    """
    if register != "rax":
        emitter.op("xchg", "rax", register)
    emitter.load("rcx", divisor)
    emitter.op("cqo")
    emitter.op("idiv", "rcx")
    for mnemonic, *operands in finish:
        emitter.op(str(mnemonic), *operands)
    if register != "rax":
        emitter.op("xchg", "rax", register)


def wrapped(value: int) -> int:
    """The signed 64-bit number that is congruent to ``value`` modulo 2**64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def slot_of(names: Names, symbol: str) -> Mem:
    """The frame slot of ``symbol``; ``VerifyError`` where the symbol is a number known now."""
    place = names[symbol]
    if not isinstance(place, Mem):
        raise VerifyError(f"{symbol} is the number {place}")
    return place


def linear(emitter: Emitter, register: str, expression: Linear, names: Names, spare: str) -> None:
    """``register = expression``, modulo 2**64; clobbers ``spare``."""
    expression = expression.substitute({s: Linear.of(v) for s, v in names.items() if isinstance(v, int)})
    terms = sorted(expression.terms, key=lambda t: (t[1] != 1, t[0]))
    constant = wrapped(expression.constant)
    if not terms:
        emitter.load(register, constant)
        return
    if terms[0][1] == 1:
        emitter.load(register, names[terms[0][0]])
        del terms[0]
    else:
        emitter.load(register, constant)
        constant = 0
    for symbol, coefficient in terms:
        if abs(coefficient) == 1:
            emitter.op("add" if coefficient == 1 else "sub", register, slot_of(names, symbol))
            continue
        factor = wrapped(abs(coefficient))
        if fits(factor):
            emitter.load(spare, names[symbol])
            emitter.scale(spare, factor, spare)
        else:
            emitter.load(spare, factor)
            emitter.op("imul", spare, slot_of(names, symbol))
        emitter.op("add" if coefficient > 0 else "sub", register, spare)
    emitter.add(register, constant, spare)
