"""Dead code elimination inside one basic block, once its operations are known.

Example: in ``put(cc_op, 5); ...; put(cc_op, 8); exit`` the first Put is removed. In: the operations of a block, in
order. Out: the operations that are left, with their temporaries numbered anew. Loads stay, because they may fault; so
do floating-point operations, because they raise flags.
"""

from __future__ import annotations

from memopt.ir.operations import (
    RAISING,
    AlignmentCheck,
    Compute,
    Exit,
    Forget,
    Get,
    Jump,
    Load,
    Operand,
    Operation,
    Put,
    Store,
    Temp,
)


def _operands(operation: Operation) -> tuple[Operand, ...]:
    match operation:
        case Compute(operands=operands):
            return operands
        case Put(value=value):
            return (value,)
        case Load(pointer=pointer) | AlignmentCheck(pointer=pointer):
            return (pointer,)
        case Store(pointer=pointer, value=value):
            return (pointer, value)
        case Exit(condition=condition):
            return (condition,)
        case Jump(target=target) if not isinstance(target, int):
            return (target,)
        case _:
            return ()


def drop_overwritten(operations: list[Operation]) -> list[Operation]:
    """Dead store elimination: removes each Put that another Put to the same location follows before an exit."""
    kept: list[Operation] = []
    overwritten: set[str] = set()
    for operation in reversed(operations):
        if isinstance(operation, (Exit, Jump)):
            overwritten.clear()
        if isinstance(operation, Put):
            if operation.location in overwritten:
                continue
            overwritten.add(operation.location)
        kept.append(operation)
    return kept[::-1]


def drop_unused(operations: list[Operation]) -> list[Operation]:
    """Dead code elimination: removes operations whose values are unused.

    Loads stay: they may fault, and they belong to the accesses of the code. Floating-point operations stay as well,
    because they raise flags.
    """
    kept: list[Operation] = []
    used: set[int] = set()
    for operation in reversed(operations):
        if isinstance(operation, (Get, Compute)) and operation.result not in used and not _raises(operation):
            continue
        used.update(o.index for o in _operands(operation) if isinstance(o, Temp))
        kept.append(operation)
    return kept[::-1]


def _raises(operation: Operation) -> bool:
    return isinstance(operation, Compute) and operation.operator in RAISING


def renumbered(operation: Operation, numbers: dict[int, int]) -> Operation:
    """``operation`` with temporary ``n`` named ``numbers[n]``."""
    def new(operand: Operand) -> Operand:
        return Temp(numbers[operand.index]) if isinstance(operand, Temp) else operand

    match operation:
        case Get(address, result, location, width):
            return Get(address, numbers[result], location, width)
        case Put(address, location, value):
            return Put(address, location, new(value))
        case Load(address, result, pointer, width):
            return Load(address, numbers[result], new(pointer), width)
        case Store(address, pointer, value, width):
            return Store(address, new(pointer), new(value), width)
        case Compute(address, result, operator, operands, width):
            return Compute(address, numbers[result], operator, tuple(map(new, operands)), width)
        case Forget():
            return operation
        case AlignmentCheck(address, pointer, size):
            return AlignmentCheck(address, new(pointer), size)
        case Exit(address, condition, target):
            return Exit(address, new(condition), target)
        case Jump(address, target, kind):
            return Jump(address, target if isinstance(target, int) else new(target), kind)
