"""The predicates of the floating-point comparisons CMPPD, CMPPS, CMPSD and CMPSS, by their immediate.

Example: ``vcmppd ymm0, ymm1, ymm2, 17`` (LT_OQ) is ``fqlt``: less, and a quiet NaN raises no flag. With the immediate
1 (LT_OS) it is ``flt``: the same bits, and a quiet NaN is invalid.

In: the name of VEX's operator, which says how the operands are compared, and the immediate. Out: the comparisons of
``memopt.ir.operations`` one of which must hold. VEX takes the predicates 16 to 31 for 0 to 15 (they differ in which
NaNs are invalid), and "equal or unordered" for "equal". Source: Intel SDM 2A, CMPPD, table 3-1.
"""

from __future__ import annotations

from memopt.x86.lanes import UnknownOperator

_QUIET = {"EQ": "feq", "LT": "fqlt", "LE": "fqle", "UN": "funord"}
_SIGNALLING = {"EQ": "fseq", "LT": "flt", "LE": "fle", "UN": "fsunord"}


def always(immediate: int) -> bool:
    """Whether the predicate is true or false whatever the operands are: FALSE_OQ, FALSE_OS, TRUE_UQ, TRUE_US."""
    return immediate & 11 == 11


def comparisons(operator: str, immediate: int, *, vex: bool) -> tuple[str, ...]:
    """The comparisons for VEX's ``operator`` (EQ, LT, LE, UN), which may be negated afterwards; one must hold.

    ``vex``: the instruction has the AVX encoding, so there are 32 predicates, not 8. Raises ``UnknownOperator`` for an
    immediate that is none of them.
    """
    if immediate >= (32 if vex else 8) or always(immediate):
        raise UnknownOperator("predicate of a comparison")
    signals = (immediate & 3 in (1, 2)) != bool(immediate & 16)
    names = _SIGNALLING if signals else _QUIET
    if operator == "EQ" and immediate & 8:  # EQ_UQ and EQ_US; NEQ_OQ and NEQ_OS negate it
        return names["EQ"], names["UN"]
    return (names[operator],)
