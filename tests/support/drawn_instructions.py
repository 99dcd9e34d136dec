"""Random straight lines of floating-point instructions, most of whose results nothing uses: their flags must stay.

Example: ``divpd xmm3, xmm1; xorps xmm3, xmm3; addpd xmm0, xmm2``. Read by ``instruction_sweep.loop``: registers 0, 1
and 2 are loaded, register 0 is stored.
"""

from __future__ import annotations

import random

_BINARY = ("add", "sub", "mul", "div", "min", "max")
_REGISTERS = 6


def drawn(seed: int) -> str:
    """A line of 4 to 8 instructions on one type; in a third of them a branch passes over one or two."""
    source = random.Random(seed)
    vex, kind = source.random() < 0.6, source.choice(("pd", "ps", "sd", "ss"))
    register = "ymm" if vex and kind[0] == "p" else "xmm"
    ready = [0, 1, 2]
    lines = []
    count = source.randrange(4, 9)
    branch = source.randrange(1, count - 2) if source.random() < 0.35 else count
    for number in range(count):
        if number == branch:
            lines += [f"{'v' if vex else ''}{source.choice(('comis', 'ucomis'))}{kind[1]} xmm0, xmm1",
                      f"j{source.choice(('a', 'b', 'ae', 'be', 'p', 'np'))} 2f"]
        text, target = _instruction(source, vex, kind, register, ready)
        while branch <= number <= branch + 1 and target not in ready:
            text, target = _instruction(source, vex, kind, register, ready)
        lines.append(text)
        ready = sorted({*ready, target})
        if number == branch + 1:
            lines.append("2: ")
    if source.random() < 0.5:
        lines.append(_binary(source, "v" if vex else "", "add" + kind, register, 0, ready, ""))
    return "; ".join(lines)


def _instruction(source: random.Random, vex: bool, kind: str, register: str, ready: list[int]) -> tuple[str, int]:
    """One instruction, and the register that it writes."""
    v, target = "v" if vex else "", source.randrange(_REGISTERS)
    choice = source.random()
    if choice < 0.1 and vex:
        name = f"v{source.choice(('fmadd', 'fmsub', 'fnmadd', 'fnmsub'))}{source.choice(('132', '213', '231'))}{kind}"
        target = source.choice(ready)
        return _binary(source, "v", name[1:], register, target, ready, ""), target
    if choice < 0.25:
        constant = source.choice((f"xorps xmm{target}, xmm{target}", f"pcmpeqd xmm{target}, xmm{target}"))
        return (f"v{constant}, xmm{target}" if vex else constant), target
    if choice < 0.35:
        name = source.choice(("comis", "ucomis")) + kind[1]
        one, two = source.choice(ready), source.choice(ready)
        return f"{v}{name} xmm{one}, xmm{two}; test r8, r8", one
    if vex or target in ready:
        if choice < 0.5:
            predicate = source.choice([n for n in range(32 if vex else 8) if n & 11 != 11])
            return _binary(source, v, f"cmp{kind}", register, target, ready, f", {predicate}"), target
        if choice < 0.9:
            return _binary(source, v, source.choice(_BINARY) + kind, register, target, ready, ""), target
    if kind[0] == "p":
        name = source.choice((f"sqrt{kind}", f"cvt{source.choice(('', 't'))}ps2dq" if kind == "ps" else "sqrtpd"))
        return f"{v}{name} {register}{target}, {register}{source.choice(ready)}", target
    return f"{v}movap{kind[1]} xmm{target}, xmm{source.choice(ready)}", target


def _binary(source: random.Random, v: str, name: str, register: str, target: int, ready: list[int],
            immediate: str) -> str:
    first = f"{register}{source.choice(ready)}, " if v else ""
    return f"{v}{name} {register}{target}, {first}{register}{source.choice(ready)}{immediate}"
