"""``memopt`` with a code generator that is wrong: ``python -m tests.support.wrong_generator exec ...``.

The first addition of each version becomes a subtraction. Everything around it is memopt's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import passes.version.generate
from memopt.ir.code import CompiledRegion
from memopt.x86.decoder import decode

_ADD, _SUBTRACT = 0x58, 0x5C
_ADDITIONS = ("addpd", "addsd", "vaddpd", "vaddsd")


def wrong(generate: Callable[..., CompiledRegion]) -> Callable[..., CompiledRegion]:
    """``generate``, with one operation of its code exchanged."""
    def generated(*arguments: Any, **named: Any) -> CompiledRegion:
        made = generate(*arguments, **named)
        code, start = bytearray(made.code), made.placement.code
        addition = next(i for i in decode(made.code, start) if i.mnemonic in _ADDITIONS)
        code[addition.address - start + bytes(addition.bytes).rindex(_ADD)] = _SUBTRACT
        return replace(made, code=bytes(code))

    return generated


if __name__ == "__main__":
    from memopt.cli import main

    passes.version.generate.generate = wrong(passes.version.generate.generate)
    main()
