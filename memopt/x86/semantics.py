"""The semantics of machine code: basic blocks as operations over 64-bit locations. The only module that imports pyvex.

Example: ``add rax, [rbx]`` becomes Get rax, Get rbx, Load 64, Compute add, Put rax, and Puts of the lazy flag state.

In: the bytes of a basic block. Out: a ``Block`` of ``memopt.ir.operations``. VEX (libVEX, the translator inside
Valgrind) gives the semantics of each instruction; its statements are walked here, and values wider than 64 bits are
split. No VEX type leaves this module. An instruction that is not understood completely is rejected with its address.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from memopt.imports import deferred, stand_in
from memopt.ir.graph import DecodedInstruction
from memopt.ir.operations import Block, Literal, Operand
from memopt.ir.reasons import Reason, Rejected
from memopt.private_files import temporary_files_in
from memopt.x86 import operators
from memopt.x86.block_builder import BlockBuilder
from memopt.x86.conditions import CARRY, expand_condition
from memopt.x86.decoder import decode, name_instruction, rip_target
from memopt.x86.lanes import UnknownOperator, Value, scalar
from memopt.x86.predicates import always
from memopt.x86.vector_operators import multiply_add_pairs

with deferred("pycparser"):  # cffi needs it only as long as there is no pickle of what it has parsed
    import cffi
    import cffi.cparser

# Lifters for instructions of systems that libVEX does not know: pyvex registers none where they are no lifters.
_SPOTTERS = ("AARCH64Spotter", "AMD64Spotter", "ARMSpotter", "X86Spotter")

with (stand_in("pyvex.lifting.gym", **dict.fromkeys(_SPOTTERS, object)),
      temporary_files_in(f"pyvex-{sys.implementation.cache_tag}-{cffi.__version__}")):  # where it loads a pickle from
    import pyvex

# libVEX translates at most 99 instructions at a time; with fewer its temporary store, of fixed size, does not overflow.
_INSTRUCTIONS_AT_A_TIME = 50

_RENAMED = {"dflag": "d_flag", "sseround": "mxcsr_round", "fs_const": "fs_base", "gs_const": "gs_base"}
_GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
_FLAGS = ("cc_op", "cc_dep1", "cc_dep2", "cc_ndep")
_WORD = (1 << 64) - 1
_MERGES = ("vmovsd", "vmovss")
# VEX drops these comparisons, and the exceptions they raise, where it sees the flags overwritten.
_FLAG_COMPARISONS = ("comisd", "comiss", "ucomisd", "ucomiss")
_BIT_TESTS = ("bt", "bts", "btr", "btc")
_BITS = {"Ity_I1": 1, "Ity_I8": 8, "Ity_I16": 16, "Ity_I32": 32, "Ity_I64": 64, "Ity_F32": 32, "Ity_F64": 64,
         "Ity_I128": 128, "Ity_V128": 128, "Ity_V256": 256}


class _Unsupported(Exception):
    """The current instruction is outside the model."""

    def __init__(self, what: str, reason: Reason = Reason.UNSUPPORTED_INSTRUCTION) -> None:
        super().__init__(what)
        self.reason = reason


@cache
def _locations() -> tuple[dict[int, str], int]:
    """Names of the 64-bit locations by their offset in VEX's guest state, and the offset of the program counter."""
    offset = pyvex.ARCH_AMD64.get_register_offset
    names = {offset(n): _RENAMED.get(n, n) for n in (*_GENERAL, *_FLAGS, *_RENAMED)}
    for number in range(16):
        for lane in range(4):
            names[offset(f"ymm{number}") + 8 * lane] = f"xmm{number}.{lane}"
    return names, offset("rip")


def lift_block(code: bytes, address: int, origin: int | None = None) -> Block:
    """The operations of a basic block: the straight-line instructions ``code``, which lie at ``address``.

    ``origin``: where the location "rip" points. Addresses relative to the instruction pointer are then "rip" plus a
    number, so that they move with the file; without it they are numbers.

    ``code`` consists of whole instructions; only the last may be a branch or a call. A repeated string instruction must
    be alone: the block is one repetition of it, which jumps to itself. The block ends with a Jump, of kind
    "fallthrough" if the last instruction is no jump. Raises Rejected(UNSUPPORTED_INSTRUCTION or ATOMIC) with "MNEMONIC
    at ADDRESS".
    """
    instructions: dict[int, DecodedInstruction] = {}
    merges: dict[int, DecodedInstruction] = {}
    limits = {len(code)}
    for instruction in decode(code, address):
        _check_exact(instruction)
        instructions[instruction.address] = instruction
        if instruction.mnemonic in _MERGES and instruction.operands_text.count(",") == 2:
            merges[instruction.address - address] = instruction
            limits.add(instruction.address - address)
        elif instruction.mnemonic.removeprefix("v") in _FLAG_COMPARISONS:
            limits.add(instruction.end - address)
    lifter = _Lifter(code, address, instructions, origin)
    offset = 0
    while offset < len(code):
        if offset in merges:
            offset = lifter.merge(merges[offset])
        else:
            offset = lifter.run(offset, min(limit for limit in limits if limit > offset))
    return lifter.builder.finish(address, len(code))


def _check_exact(instruction: DecodedInstruction) -> None:
    """Reject the instructions that VEX models differently from the processor; found by running both."""
    name = instruction.mnemonic.removeprefix("v")
    operands = instruction.operands_text.split(", ")
    # VEX does a bit test with its index in a register through memory below the stack pointer. It adds the terms of dot
    # products in another order, which shows in NaNs. Its bit scan of 0 leaves other upper bits. Its gather reads the
    # stack for masked-off elements. For the comparisons that are always true or false it does not look at the operands,
    # which raise flags all the same.
    if (name in ("dpps", "dppd", "bsf", "bsr") or "gather" in name
            or (instruction.mnemonic.startswith("vcmp") and always(instruction.bytes[-1]))
            or (name in _BIT_TESTS and operands[1][:1].isalpha())):
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction.mnemonic} at {instruction.address:#x}")


class _Lifter:
    """Walks VEX statements; ``builder`` keeps the values of the locations from one VEX block to the next."""

    def __init__(self, code: bytes, address: int, instructions: Mapping[int, DecodedInstruction], origin: int | None
                 ) -> None:
        self.code = code
        self.origin = origin
        self.start = address
        self.builder = BlockBuilder(instructions)
        self.temporaries: dict[int, Value] = {}
        self.types: list[str] = []

    def merge(self, instruction: DecodedInstruction) -> int:
        """Lift ``vmovsd`` or ``vmovss`` of three registers; return the offset after it.

        The result is the low element of the last operand and the rest of the lower half of the second. VEX gets the
        encoding with the destination in modrm.rm wrong.
        """
        self.builder.address = instruction.address
        to, rest, low = instruction.operands_text.split(", ")
        element, upper = (self.builder.get(f"{register}.0") for register in (low, rest))
        if instruction.mnemonic == "vmovss":
            parts = self.builder.compute("high", (upper,), 32), self.builder.compute("trunc", (element,), 32)
            element = self.builder.compute("concat", parts, 64)
        for lane, value in enumerate((element, self.builder.get(f"{rest}.1"), Literal(0, 64), Literal(0, 64))):
            self.builder.put(f"{to}.{lane}", value)
        end = instruction.end - self.start
        if end == len(self.code):
            self.builder.jump(instruction.end, "fallthrough")
        return end

    def run(self, offset: int, limit: int) -> int:
        """Lift the code from ``offset`` that VEX takes for one block, at most to ``limit``; return the offset after it.
        """
        self.builder.address = self.start + offset
        block: Any = pyvex.lift(self.code[offset:], self.start + offset, pyvex.ARCH_AMD64, opt_level=1,
                                max_inst=_INSTRUCTIONS_AT_A_TIME, max_bytes=limit - offset,
                                cross_insn_opt=False)  # would drop operations whose results are overwritten
        self.temporaries = {}
        self.types = block.tyenv.types
        end = offset
        try:
            for statement in block.statements:
                if statement.tag == "Ist_IMark":
                    self.builder.address = statement.addr + statement.delta
                    end = self.builder.address + statement.len - self.start
                else:
                    self._statement(statement)
            if block.jumpkind in ("Ijk_NoDecode", "Ijk_EmFail") or end == offset:
                if end < len(self.code):
                    self.builder.address = self.start + end
                raise _Unsupported("not decoded")
            self._leave(block, end)
        except (_Unsupported, UnknownOperator) as error:
            at = self.builder.address
            reason = error.reason if isinstance(error, _Unsupported) else Reason.UNSUPPORTED_INSTRUCTION
            raise Rejected(reason, name_instruction(self.code[at - self.start:], at)) from error
        return end

    def _leave(self, block: Any, end: int) -> None:
        """The jump at the end of a VEX block; none when only VEX stopped there."""
        target = scalar(self._expression(block.next))
        following = self.start + end
        if block.jumpkind == "Ijk_Boring":
            if isinstance(target, Literal):
                if target.value == self.builder.address and (end < len(self.code) or self.start != target.value):
                    raise _Unsupported("repeated instruction")
                if end == len(self.code):
                    self.builder.jump(target.value, "fallthrough" if target.value == following else "boring")
                elif target.value != following:
                    raise _Unsupported("branch inside the block")
                return
            kind = "indirect"
        elif block.jumpkind in ("Ijk_Call", "Ijk_Ret"):
            kind = block.jumpkind[4:].lower()
        else:
            raise _Unsupported(block.jumpkind)
        if end != len(self.code):
            raise _Unsupported("branch inside the block")
        self.builder.jump(target.value if isinstance(target, Literal) else target, kind)

    # -- statements ------------------------------------------------------------------------------------------------

    def _statement(self, statement: Any) -> None:
        match statement.tag:
            case "Ist_WrTmp":
                self.temporaries[statement.tmp] = self._expression(statement.data)
            case "Ist_Put":
                self._put(statement.offset, self._expression(statement.data))
            case "Ist_Store":
                self._store(scalar(self._expression(statement.addr)), self._expression(statement.data))
            case "Ist_Exit":
                self._exit(statement)
            case "Ist_CAS" | "Ist_LLSC" | "Ist_MBE":
                raise _Unsupported(statement.tag, Reason.ATOMIC)
            case "Ist_AbiHint" | "Ist_NoOp":
                pass
            case _:
                raise _Unsupported(statement.tag)

    def _exit(self, statement: Any) -> None:
        condition = scalar(self._expression(statement.guard))
        if statement.jumpkind == "Ijk_SigSEGV":
            self._alignment(condition)
        elif statement.jumpkind == "Ijk_SigFPE_IntDiv":
            pass  # the exit for a division by zero; the division that follows faults there as well
        elif statement.jumpkind == "Ijk_Boring":
            if statement.dst.value == self.builder.address:
                raise _Unsupported("repeated instruction")
            self.builder.exit(condition, statement.dst.value)
        else:
            raise _Unsupported(statement.jumpkind)

    def _alignment(self, condition: Operand) -> None:
        """Recognise ``pointer & (size - 1) != 0``, VEX's form of "the access faults unless it is aligned"."""
        if condition == Literal(0, 1):
            return
        test = self.builder.is_a(condition, "ne")
        masked = self.builder.is_a(test.operands[0], "and") if test else None
        mask = masked.operands[1] if masked else None
        if masked is None or not isinstance(mask, Literal) or mask.value not in (15, 31):
            raise _Unsupported("fault condition")
        self.builder.check_alignment(masked.operands[0], mask.value + 1)

    def _store(self, pointer: Operand, value: Value) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        for index, part in enumerate(parts):
            self.builder.store(self._displaced(pointer, 8 * index), part)

    def _displaced(self, pointer: Operand, offset: int) -> Operand:
        return self.builder.compute("add", (pointer, Literal(offset, 64)), 64)

    # -- locations -------------------------------------------------------------------------------------------------

    def _location(self, offset: int) -> tuple[str, int]:
        """(64-bit location that holds the byte at ``offset`` of VEX's guest state, number of the byte in it)."""
        name = _locations()[0].get(offset & ~7)
        if name is None:
            raise _Unsupported(f"guest state at {offset}")
        return name, offset & 7

    def _put(self, offset: int, value: Value) -> None:
        if offset == _locations()[1]:
            return
        for index, part in enumerate(value if isinstance(value, tuple) else (value,)):
            name, shift = self._location(offset + 8 * index)
            self.builder.put(name, self._merge(name, shift, part))

    def _merge(self, name: str, shift: int, part: Operand) -> Operand:
        """The 64-bit value of location ``name`` after ``part`` is written at its byte ``shift``."""
        b = self.builder
        width = b.width(part)
        if width == 64:
            return part
        old = b.get(name)
        if width == 32:
            halves = (part, b.compute("trunc", (old,), 32)) if shift else (b.compute("high", (old,), 32), part)
            return b.compute("concat", halves, 64)
        mask = ~(((1 << width) - 1) << (8 * shift)) & 0xFFFFFFFFFFFFFFFF
        moved = b.compute("shl", (b.compute("zext", (part,), 64), Literal(8 * shift, 8)), 64)
        return b.compute("or", (b.compute("and", (old, Literal(mask, 64)), 64), moved), 64)

    def _get(self, offset: int, width: int) -> Value:
        if width > 64:
            return tuple(scalar(self._get(offset + 8 * lane, 64)) for lane in range(width // 64))
        name, shift = self._location(offset)
        moved = self.builder.compute("shr", (self.builder.get(name), Literal(8 * shift, 8)), 64)
        return self.builder.resize(moved, width)

    # -- expressions -----------------------------------------------------------------------------------------------

    def _expression(self, expression: Any) -> Value:
        match expression.tag:
            case "Iex_RdTmp":
                return self.temporaries[expression.tmp]
            case "Iex_Const":
                return self._place(_constant(expression.con))
            case "Iex_Get":
                return self._get(expression.offset, _BITS[expression.ty])
            case "Iex_Load":
                return self._load(scalar(self._expression(expression.addr)), _BITS[expression.ty])
            case "Iex_Unop" | "Iex_Binop" | "Iex_Triop" | "Iex_Qop":
                operands = tuple(self._expression(a) for a in expression.args)
                return operators.apply(self.builder, expression.op[4:], operands)
            case "Iex_ITE":
                return self._select(expression)
            case "Iex_CCall":
                return self._helper(expression)
            case _:
                raise _Unsupported(expression.tag)

    def _place(self, value: Value) -> Value:
        """``value``, as a distance from the origin if it is what the instruction addresses relative to itself.

        VEX shows such an address as a number. In a program that is loaded at any address, no other operand of the
        instruction can be the same number: immediates beside an address in memory have 32 bits."""
        found = self.builder.instruction
        if self.origin is None or not isinstance(value, Literal) or value.width != 64 or found is None:
            return value
        if value.value != rip_target(found):
            return value
        distance = Literal(value.value - self.origin & _WORD, 64)
        return self.builder.compute("add", (self.builder.get("rip"), distance), 64)

    def _load(self, pointer: Operand, width: int) -> Value:
        if width <= 64:
            return self.builder.load(pointer, width)
        return tuple(self.builder.load(self._displaced(pointer, at), 64) for at in range(0, width // 8, 8))

    def _select(self, expression: Any) -> Value:
        condition = scalar(self._expression(expression.cond))
        first, second = self._expression(expression.iftrue), self._expression(expression.iffalse)
        if isinstance(first, tuple) and isinstance(second, tuple):
            return tuple(self.builder.compute("select", (condition, *pair), 64)
                         for pair in zip(first, second, strict=True))
        arms = scalar(first), scalar(second)
        return self.builder.compute("select", (condition, *arms), self.builder.width(arms[0]))

    def _helper(self, expression: Any) -> Operand:
        """A call of one of VEX's helper functions: flags and conditions, PMADDWD.

        A condition becomes a comparison where it is known which operation set the flags; else it stays a "condition" or
        "carry" of the flag state.
        """
        b = self.builder
        operands = tuple(scalar(self._expression(a)) for a in expression.args)
        name = expression.callee.name
        if name == "amd64g_calculate_mmx_pmaddwd":
            return multiply_add_pairs(b, operands)
        if name == "amd64g_calculate_rflags_all":
            return b.compute("flags", operands, 64)
        if name == "amd64g_calculate_rflags_c":
            number, flags = CARRY, operands
        elif name == "amd64g_calculate_condition" and isinstance(operands[0], Literal):
            number, flags = operands[0].value, operands[1:]
        else:
            raise _Unsupported(name)
        if isinstance(flags[0], Literal):
            _, dep1, dep2, ndep = flags
            found = expand_condition(number, flags[0].value, dep1, dep2, ndep, b.compute, Literal, b.address)
            bit = b.compute(found.operator, (found.left, found.right), 1)
        elif name.endswith("_c"):
            bit = b.compute("carry", flags, 1)
        else:
            bit = b.compute("condition", (Literal(number, 64), *flags), 1)
        return b.compute("zext", (bit,), 64)


def _constant(constant: Any) -> Value:
    value, kind = constant.value, constant.type
    if kind == "Ity_V128" or kind == "Ity_V256":
        return tuple(Literal(value >> 64 * lane & 0xFFFFFFFFFFFFFFFF, 64) for lane in range(_BITS[kind] // 64))
    if isinstance(value, float):
        form, width = ("<f", 32) if kind == "Ity_F32" else ("<d", 64)
        return Literal(int.from_bytes(struct.pack(form, value), "little"), width)
    return Literal(int(value) & ((1 << _BITS[kind]) - 1), _BITS[kind])
