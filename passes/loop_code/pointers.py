"""Pointer sharing (strength reduction): accesses that differ by a constant use one pointer and a displacement.

Example: ``a[i-1] + a[i] + a[i+1]`` of doubles needs one pointer, with the displacements -8, 0 and 8. The pointer is
advanced by an addition from step to step, never recomputed.

In: the addresses of a leaf, affine in the axes. Out: groups with equal strides and a constant distance; a register, or
a frame slot, for each group. The address of a group at a point is ``base + row*r + vector*v + sequential*k``, with
``base`` Linear over dates and symbols. ``Index`` operands form groups too: their "address" is the number itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.instructions import Mem
from passes.loop_code.ast_code import linear
from passes.loop_code.leaf_shape import Along
from passes.vector.emitter import Emitter, fits

POINTERS = ("rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
"""Registers for the pointers of a register tile. rax and rdx are scratch, rcx counts steps."""
_REACH = 1 << 24  # bytes between members of a group; leaves room for rows and vectors in a 32-bit displacement


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses that share a pointer: group ``number`` of the leaf. ``base`` is the address of its first member."""

    number: int
    base: Along

    def factor(self, axis: str) -> int:
        """Bytes that the pointer moves by from one number on ``axis`` to the next."""
        return self.base.factor(axis)


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of all accesses of a leaf."""

    groups: tuple[Group, ...]
    members: Mapping[Along, tuple[Group, int]]  # of each address its group, and its distance in bytes from the base


def group(addresses: Iterable[Along]) -> Groups:
    """Group the addresses that differ by a constant, within reach of a displacement, at every point."""
    groups: list[Group] = []
    members: dict[Along, tuple[Group, int]] = {}
    for address in dict.fromkeys(addresses):
        for candidate in groups:
            distance = address.rest - candidate.base.rest
            near = distance.is_constant and abs(distance.constant) < _REACH
            if near and _strides(address) == _strides(candidate.base):
                members[address] = candidate, distance.constant
                break
        else:
            groups.append(Group(len(groups), address))
            members[address] = groups[-1], 0
    return Groups(tuple(groups), members)


def _strides(address: Along) -> tuple[int, int, int]:
    return address.row, address.vector, address.sequential


class Pointers:
    """The pointers of one register tile: in registers as far as these suffice, the ``spilled`` ones in frame slots."""

    def __init__(self, emitter: Emitter, groups: Groups, spilled: Mapping[Group, Mem]) -> None:
        self._emitter = emitter
        self._groups = groups
        self._spilled = spilled
        in_registers = (g for g in groups.groups if g not in spilled)
        self._registers = dict(zip(in_registers, POINTERS, strict=False))

    def load(self, starts: Mapping[Group, Linear], names: Mapping[str, int | Mem]) -> None:
        """Set every pointer to its start, where ``names`` says where the symbols are; clobbers rax and rdx."""
        for member in self._groups.groups:
            register = self._registers.get(member, "rax")
            linear(self._emitter, register, starts[member], names, "rdx")
            if member in self._spilled:
                self._emitter.op("mov", self._spilled[member], register)

    def advance(self, axis: str | None, count: int) -> None:
        """Advance every pointer by ``count`` numbers along ``axis`` (None: not at all); clobbers rax."""
        for member in self._groups.groups:
            distance = member.factor(axis) * count if axis is not None else 0
            if distance and fits(distance):
                self._emitter.op("add", self._registers.get(member) or self._spilled[member], distance)
            elif distance:
                self._emitter.load("rax", distance)
                self._emitter.op("add", self._registers.get(member) or self._spilled[member], "rax")

    def at_hand(self, address: Along) -> bool:
        """Whether the pointer of ``address`` is in a register, so that ``operand`` emits no code."""
        return self._groups.members[address][0] in self._registers

    def operand(self, address: Along, displacement: int, size: int) -> Mem:
        """The ``size`` bytes at ``address + displacement`` as a memory operand; a spilled pointer is loaded into rdx.

        Raises Rejected(NO_PLAN) where the distance within the tile does not fit a 32-bit displacement.
        """
        member, distance = self._groups.members[address]
        if not fits(distance + displacement):
            raise Rejected(Reason.NO_PLAN, f"an access of a register tile is {distance + displacement} bytes from its "
                                           "pointer, too far for a displacement")
        register = self._registers.get(member)
        if register is None:
            self._emitter.op("mov", "rdx", self._spilled[member])
            register = "rdx"
        return Mem(register, displacement=distance + displacement, size=size)


def spilled(emitter: Emitter, groups: Groups) -> dict[Group, Mem]:
    """Frame slots for the groups that get no register: those that move least often."""
    order = sorted(groups.groups, key=lambda g: (not g.base.sequential, not g.base.vector, g.number))
    return {g: emitter.slot() for g in order[len(POINTERS):]}
