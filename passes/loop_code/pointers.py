"""Pointers of a leaf: accesses that move together share one, and differ by their displacement.

A group's address at a point is ``base + row * r + vector * v + sequential * k``, its ``base`` Linear over dates and
symbols. ``Index`` operands are groups too: their "address" is the number itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.instructions import Mem
from passes.loop_code.ast_code import linear
from passes.loop_code.leaf_shape import Along
from passes.vector.emitter import Emitter, fits

POINTERS = ("rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
"""Registers for pointers in a register tile; rax and rdx are for addresses in passing, rcx counts."""
_REACH = 1 << 24


@dataclass(frozen=True, slots=True)
class Group:
    """``number``: its place among the leaf's groups. ``base`` is that of the first member."""

    number: int
    base: Along

    def factor(self, axis: str) -> int:
        return self.base.factor(axis)


@dataclass(frozen=True, slots=True)
class Groups:
    """``members``: the group of each address and its distance from the group's base."""

    groups: tuple[Group, ...]
    members: Mapping[Along, tuple[Group, int]]


def group(addresses: Iterable[Along]) -> Groups:
    """Together: addresses that differ by a constant, within reach of a displacement, at every point."""
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
    """The groups of one register tile in registers, as far as there are any, the others in frame slots."""

    def __init__(self, emitter: Emitter, groups: Groups, spilled: Mapping[Group, Mem]) -> None:
        self._emitter = emitter
        self._groups = groups
        self._spilled = spilled
        in_registers = (g for g in groups.groups if g not in spilled)
        self._registers = dict(zip(in_registers, POINTERS, strict=False))

    def load(self, starts: Mapping[Group, Linear], names: Mapping[str, int | Mem]) -> None:
        """Every pointer at its start; clobbers rax and rdx."""
        for member in self._groups.groups:
            register = self._registers.get(member, "rax")
            linear(self._emitter, register, starts[member], names, "rdx")
            if member in self._spilled:
                self._emitter.op("mov", self._spilled[member], register)

    def advance(self, axis: str | None, count: int) -> None:
        """Every pointer ``count`` numbers further along ``axis``; clobbers rax."""
        for member in self._groups.groups:
            distance = member.factor(axis) * count if axis is not None else 0
            if distance and fits(distance):
                self._emitter.op("add", self._registers.get(member) or self._spilled[member], distance)
            elif distance:
                self._emitter.load("rax", distance)
                self._emitter.op("add", self._registers.get(member) or self._spilled[member], "rax")

    def at_hand(self, address: Along) -> bool:
        """Whether ``operand`` needs no code."""
        return self._groups.members[address][0] in self._registers

    def operand(self, address: Along, displacement: int, size: int) -> Mem:
        """Memory at ``displacement`` from an address; loads rdx with a pointer that is not in a register. Raises
        Rejected where no displacement reaches from one row or vector of the tile to the next."""
        member, distance = self._groups.members[address]
        if not fits(distance + displacement):
            raise Rejected(Reason.NO_PLAN, f"a step of {distance + displacement} in a tile")
        register = self._registers.get(member)
        if register is None:
            self._emitter.op("mov", "rdx", self._spilled[member])
            register = "rdx"
        return Mem(register, displacement=distance + displacement, size=size)


def spilled(emitter: Emitter, groups: Groups) -> dict[Group, Mem]:
    """Slots for the groups that get no register: those that move least."""
    order = sorted(groups.groups, key=lambda g: (not g.base.sequential, not g.base.vector, g.number))
    return {g: emitter.slot() for g in order[len(POINTERS):]}
