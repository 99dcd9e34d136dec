"""The assembler against GNU as, over thousands of random forms: both outputs must decode to the same text.

GNU as shares nothing with Keystone or with the assembler's own verification.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.x86.assembler import assemble
from memopt.x86.decoder import decode
from memopt.x86.instructions import GENERAL, Instruction, Mem, dword, instruction

BASE = 0x400000
INDEXES = tuple(r for r in GENERAL if r != "rsp")
DISPLACEMENTS = (0, 1, -1, 8, 64, -64, 120, 127, 128, -128, -129, 256, 4096, -4096, 8192, 0x12345679, 2**31 - 1, -2**31)
Maker = Callable[[random.Random], Instruction]


def memory(rng: random.Random, size: int, broadcast: int = 0) -> Mem:
    displacement = rng.choice((*DISPLACEMENTS, rng.randrange(-2**31, 2**31), 64 * rng.randrange(-3000, 3000),
                               size * rng.randrange(-140, 140)))
    index = rng.choice((None, *INDEXES))
    base = rng.choice(GENERAL) if index is None or rng.random() < 0.9 else None
    scale = rng.choice((1, 2, 4, 8)) if index else 1
    if base is None and scale == 1:
        scale = 2
    return Mem(base, index, scale, displacement, size, broadcast)


def gpr(rng: random.Random, bits: int = 64) -> str:
    name = rng.choice(GENERAL)
    return name if bits == 64 else dword(name)


def vector(rng: random.Random, kind: str) -> str:
    return f"{kind}mm{rng.randrange(32 if kind == 'z' else 16)}"


def integer(rng: random.Random) -> Instruction:
    bits = rng.choice((32, 64))
    mnemonic = rng.choice(("mov", "add", "sub", "cmp", "and", "or", "xor", "adc", "sbb", "test"))
    immediate = rng.choice((0, 1, -1, 127, -128, 128, 2**31 - 1, -2**31, rng.randrange(-2**31, 2**31)))
    place = rng.choice((gpr(rng, bits), memory(rng, bits // 8)))
    other = rng.choice((immediate, gpr(rng, bits)))
    if isinstance(place, str) and mnemonic != "test" and rng.random() < 0.4:
        return instruction(mnemonic, place, memory(rng, bits // 8))
    return instruction(mnemonic, place, other)


def integer_other(rng: random.Random) -> Instruction:
    choices: tuple[Callable[[], Instruction], ...] = (
        lambda: instruction("lea", gpr(rng), memory(rng, 8)),
        lambda: instruction("imul", gpr(rng), rng.choice((gpr(rng), memory(rng, 8))), rng.randrange(-2**31, 2**31)),
        lambda: instruction("imul", gpr(rng), rng.choice((gpr(rng), memory(rng, 8)))),
        lambda: instruction("mov", gpr(rng), rng.randrange(-2**63, 2**64)),
        lambda: instruction("movsxd", gpr(rng), rng.choice((gpr(rng, 32), memory(rng, 4)))),
        lambda: instruction(rng.choice(("idiv", "neg", "not", "inc", "dec", "mul")), memory(rng, 8)),
        lambda: instruction(rng.choice(("idiv", "neg", "not", "inc", "dec", "mul")), gpr(rng)),
        lambda: instruction(rng.choice(("shl", "shr", "sar")), gpr(rng), rng.randrange(64)),
        lambda: instruction(rng.choice(("shl", "shr", "sar")), memory(rng, 8), rng.choice((1, 7))),
        lambda: instruction("cmov" + rng.choice(("e", "ne", "l", "ge", "g", "le", "b", "a", "s", "o")), gpr(rng),
                            rng.choice((gpr(rng), memory(rng, 8)))),
        lambda: instruction("set" + rng.choice(("o", "e", "ne", "l", "be", "s")), rng.choice(("al", "sil", "r9b"))),
        lambda: instruction("movzx", gpr(rng, 32), memory(rng, 1)),
        lambda: instruction("movnti", memory(rng, 8), gpr(rng)),
        lambda: instruction("xchg", memory(rng, 8), gpr(rng)),
        lambda: instruction(rng.choice(("stmxcsr", "ldmxcsr")), memory(rng, 4)),
        lambda: instruction(rng.choice(("xsave64", "xrstor64", "fxsave64", "fxrstor64")), memory(rng, 8)),
        lambda: instruction(rng.choice(("prefetcht0", "prefetcht1", "prefetchnta", "prefetchw")), memory(rng, 1)),
        lambda: instruction(rng.choice(("rdtsc", "lahf", "sahf", "cqo", "xgetbv", "sfence", "ud2", "nop"))),
        lambda: instruction("add", "al", rng.randrange(-128, 256)),
    )
    return rng.choice(choices)()


def sse(rng: random.Random) -> Instruction:
    x = vector(rng, "x")
    kind = rng.randrange(8)
    if kind == 0:
        mnemonic = rng.choice(("movsd", "movss"))
        place = memory(rng, 8 if mnemonic == "movsd" else 4)
        return instruction(mnemonic, *rng.choice(((x, place), (place, x), (x, vector(rng, "x")))))
    if kind == 1:
        place = memory(rng, 16)
        return instruction(rng.choice(("movapd", "movaps", "movupd", "movups", "movdqu")),
                           *rng.choice(((x, place), (place, x))))
    if kind == 2:
        return instruction(rng.choice(("shufps", "shufpd", "pshufd")), x, vector(rng, "x"), rng.randrange(256))
    if kind == 3:
        mnemonic = rng.choice(("mulsd", "addsd", "subsd", "divsd", "sqrtsd", "ucomisd"))
        return instruction(mnemonic, x, rng.choice((vector(rng, "x"), memory(rng, 8))))
    if kind == 4:
        return instruction(rng.choice(("cmppd", "cmpps")), x, vector(rng, "x"), rng.randrange(8))
    if kind == 5:
        return instruction("movq", *rng.choice(((gpr(rng), x), (x, gpr(rng)), (x, memory(rng, 8)))))
    if kind == 6:
        return instruction(rng.choice(("movhpd", "movlpd")), *rng.choice(((x, memory(rng, 8)), (memory(rng, 8), x))))
    mnemonic = rng.choice(("mulpd", "addpd", "subpd", "divpd", "unpcklpd", "unpckhpd", "unpcklps", "mulps", "addps",
                           "subps", "divps", "minpd", "maxps", "sqrtpd", "xorps", "andpd", "orps", "pxor"))
    return instruction(mnemonic, x, rng.choice((vector(rng, "x"), memory(rng, 16))))


def vex(rng: random.Random) -> Instruction:
    kind = rng.choice("xy")
    size = 16 if kind == "x" else 32
    a, b, c = (vector(rng, kind) for _ in range(3))
    third = rng.choice((c, memory(rng, size)))
    choice = rng.randrange(8)
    if choice == 0:
        place = memory(rng, size)
        return instruction(rng.choice(("vmovupd", "vmovapd", "vmovups", "vmovdqu")),
                           *rng.choice(((a, place), (place, a), (a, b))))
    if choice == 1:
        wide = rng.random() < 0.5
        return instruction("vbroadcastsd", vector(rng, "y"), memory(rng, 8)) if wide else instruction(
            "vbroadcastss", a, memory(rng, 4))
    if choice == 2:
        return instruction(rng.choice(("vfmadd231pd", "vfmadd231ps", "vfnmadd231pd", "vfmadd213pd")), a, b, third)
    if choice == 3:
        return instruction(rng.choice(("vperm2f128", "vblendpd")), *(vector(rng, "y") for _ in range(3)),
                           rng.randrange(4))
    if choice == 4:
        mnemonic = rng.choice(("vinsertf128", "vextractf128"))
        x = rng.choice((vector(rng, "x"), memory(rng, 16)))
        y = vector(rng, "y")
        operands = (x, y, 1) if mnemonic == "vextractf128" else (y, vector(rng, "y"), x, 1)
        return instruction(mnemonic, *operands)
    if choice == 5:
        place = memory(rng, size)
        return instruction(rng.choice(("vmaskmovpd", "vmaskmovps")), *rng.choice(((a, b, place), (place, a, b))))
    if choice == 6:
        return instruction("vcmppd", a, b, c, rng.randrange(32))
    return instruction(rng.choice(("vmulpd", "vaddpd", "vsubpd", "vdivpd", "vmulps", "vaddps", "vsubps", "vminpd",
                                   "vunpcklpd", "vunpckhps", "vxorpd", "vandpd", "vpermilpd")), a, b, third)


def evex(rng: random.Random) -> Instruction:
    a, b, c = (vector(rng, "z") for _ in range(3))
    mask = rng.choice((None, None, f"k{rng.randrange(1, 8)}"))
    zeroing = mask is not None and rng.random() < 0.5
    single = rng.random() < 0.5
    suffix = "ps" if single else "pd"
    repeated = memory(rng, 4, 16) if single else memory(rng, 8, 8)
    third = rng.choice((c, memory(rng, 64), repeated))
    choice = rng.randrange(7)
    if choice == 0:
        place = memory(rng, 64)
        mnemonic = rng.choice(("vmovup", "vmovap")) + suffix[1]
        if rng.random() < 0.5:
            return instruction(mnemonic, place, a, mask=mask)
        return instruction(mnemonic, a, rng.choice((place, b)), mask=mask, zeroing=zeroing)
    if choice == 1:
        source = rng.choice((memory(rng, 4 if single else 8), f"xmm{rng.randrange(32)}"))
        return instruction("vbroadcasts" + suffix[1], a, source, mask=mask, zeroing=zeroing)
    if choice == 2:
        mnemonic = rng.choice(("vfmadd231", "vfnmadd231", "vfmadd213", "vfmsub132")) + suffix
        return instruction(mnemonic, a, b, third, mask=mask, zeroing=zeroing)
    if choice == 3:
        return instruction(rng.choice(("vshuff64x2", "vshuff32x4")), a, b, rng.choice((c, memory(rng, 64))),
                           rng.randrange(256), mask=mask, zeroing=zeroing)
    if choice == 4:
        return instruction("vpermil" + suffix, a, rng.choice((b, memory(rng, 64), repeated)), rng.randrange(256),
                           mask=mask, zeroing=zeroing)
    if choice == 5:
        return instruction("vcmp" + suffix, f"k{rng.randrange(8)}", b, third, rng.randrange(32), mask=mask)
    return instruction(rng.choice(("vmul", "vadd", "vsub", "vdiv", "vmin", "vmax", "vunpckl", "vunpckh")) + suffix,
                       a, b, third, mask=mask, zeroing=zeroing)


def evex_other(rng: random.Random) -> Instruction:
    a, b, c = (vector(rng, "z") for _ in range(3))
    mask = rng.choice((None, f"k{rng.randrange(1, 8)}"))
    zeroing = mask is not None and rng.random() < 0.5
    k = f"k{rng.randrange(8)}"
    high = f"xmm{rng.randrange(16, 32)}"
    choices: tuple[Callable[[], Instruction], ...] = (
        lambda: instruction("kmovw", *rng.choice(((k, gpr(rng, 32)), (gpr(rng, 32), k), (k, memory(rng, 2))))),
        lambda: instruction("vextractf64x4", rng.choice((f"ymm{rng.randrange(32)}", memory(rng, 32))), a,
                            rng.randrange(2)),
        lambda: instruction("vextractf32x4", rng.choice((high, memory(rng, 16))), a, rng.randrange(4)),
        lambda: instruction("vmovntpd", memory(rng, 64), a),
        lambda: instruction("vpbroadcastq", a, rng.choice((gpr(rng), memory(rng, 8))), mask=mask, zeroing=zeroing),
        lambda: instruction("vmovsd", *rng.choice(((high, memory(rng, 8)), (memory(rng, 8), high)))),
        lambda: instruction("vpermt2pd", a, b, c, mask=mask, zeroing=zeroing),
        lambda: instruction("vpxorq", a, b, rng.choice((c, memory(rng, 64))), mask=mask, zeroing=zeroing),
    )
    return rng.choice(choices)()


def evex_integer(rng: random.Random) -> Instruction:
    a, b, c = (vector(rng, "z") for _ in range(3))
    mask = rng.choice((None, f"k{rng.randrange(1, 8)}"))
    zeroing = mask is not None and rng.random() < 0.5
    size, letter = rng.choice(((8, "q"), (4, "d")))
    third = rng.choice((c, memory(rng, 64), memory(rng, size, 64 // size)))
    k = f"k{rng.randrange(8)}"
    halves, quarter = (f"{kind}mm{rng.randrange(32)}" for kind in "yx")
    choices: tuple[Callable[[], Instruction], ...] = (
        lambda: instruction(rng.choice(("vpadd", "vpsub", "vpmins", "vpmaxs", "vpminu", "vpmaxu", "vpand", "vpor",
                                        "vpxor", "vpandn")) + letter, a, b, third, mask=mask, zeroing=zeroing),
        lambda: instruction("vpmulld", a, b, rng.choice((c, memory(rng, 64), memory(rng, 4, 16)))),
        lambda: instruction(rng.choice(("vpmuludq", "vpmuldq")), a, b, rng.choice((c, memory(rng, 8, 8)))),
        lambda: instruction(rng.choice(("vpsll", "vpsrl", "vpsra")) + letter, a, b, rng.randrange(64)),
        lambda: instruction(rng.choice(("vpcmp", "vpcmpu")) + letter, k, b, third, rng.choice((0, 1, 2, 4, 5, 6)),
                            mask=mask),
        lambda: instruction(rng.choice(("vblendmp" + {8: "d", 4: "s"}[size], "vpblendm" + letter)), a, b, c, mask="k2"),
        lambda: instruction("vptestm" + letter, k, b, third),
        lambda: instruction(rng.choice(("vpmovzxbd", "vpmovsxbd", "vpmovzxwq", "vpmovsxwq")), a,
                            rng.choice((quarter, memory(rng, 16))), mask=mask, zeroing=zeroing),
        lambda: instruction(rng.choice(("vpmovzxdq", "vpmovsxdq", "vpmovsxwd")), a,
                            rng.choice((halves, memory(rng, 32))), mask=mask, zeroing=zeroing),
        lambda: instruction(rng.choice(("vpmovqd", "vpmovdw")), rng.choice((halves, memory(rng, 32))), a, mask=mask),
        lambda: instruction(rng.choice(("vpmovdb", "vpmovqw")), rng.choice((quarter, memory(rng, 16))), a, mask=mask),
        lambda: instruction("vpmovqb", memory(rng, 8), a, mask=mask),
        lambda: instruction(rng.choice(("vcvtdq2pd", "vcvtudq2pd", "vcvtps2pd")), a, halves, mask=mask,
                            zeroing=zeroing),
        lambda: instruction(rng.choice(("vcvtpd2ps", "vcvttpd2dq")), halves, a, mask=mask, zeroing=zeroing),
        lambda: instruction(rng.choice(("vcvtdq2ps", "vcvttps2dq")), a, b, mask=mask, zeroing=zeroing),
        lambda: instruction(rng.choice(("vmovdqu", "vmovdqa")) + {8: "64", 4: "32"}[size],
                            *rng.choice(((memory(rng, 64), a), (a, memory(rng, 64)), (a, b))), mask=mask),
        lambda: instruction("vpbroadcast" + letter, a, gpr(rng, 8 * size), mask=mask, zeroing=zeroing),
        lambda: instruction(rng.choice(("vmovntps", "vmovntdq")), memory(rng, 64), a),
        lambda: instruction("vinsertf32x4", a, b, rng.choice((quarter, memory(rng, 16))), rng.randrange(4)),
    )
    return rng.choice(choices)()


def masks(rng: random.Random) -> Instruction:
    a, b, c = (f"k{rng.randrange(8)}" for _ in range(3))
    low = gpr(rng, 32)
    return rng.choice((instruction(rng.choice(("kandw", "korw", "kxorw", "kxnorw", "kandnw")), a, b, c),
                       instruction("knotw", a, b), instruction("kmovw", a, b), instruction("kmovw", low, a),
                       instruction("bzhi", low, gpr(rng, 32), gpr(rng, 32))))


def gathers(rng: random.Random) -> Instruction:
    """Every combination of index and element; the three registers of a gather differ."""
    kind = rng.choice(("dpd", "dps", "qpd", "qps", "dq", "dd", "qq", "qd"))
    index, value = {"dpd": "yz", "dps": "zz", "qpd": "zz", "qps": "zy"}[
        kind if "p" in kind else kind[0] + {"q": "pd", "d": "ps"}[kind[1]]]
    numbers = rng.sample(range(32), 2)
    place = replace(memory(rng, 64), base=rng.choice(GENERAL), index=f"{index}mm{numbers[0]}",
                    scale=rng.choice((1, 2, 4, 8)))
    register, mask = f"{value}mm{numbers[1]}", f"k{rng.randrange(1, 8)}"
    letter = "" if "p" in kind else "p"
    if rng.random() < 0.5:
        return instruction(f"v{letter}gather{kind}", register, place, mask=mask)
    return instruction(f"v{letter}scatter{kind}", place, register, mask=mask)


def vex_integer(rng: random.Random) -> Instruction:
    kind = rng.choice("xy")
    size = 16 if kind == "x" else 32
    a, b, c = (vector(rng, kind) for _ in range(3))
    x, y = vector(rng, "x"), vector(rng, "y")
    third = rng.choice((c, memory(rng, size)))
    letter = rng.choice("bwd")
    choices: tuple[Callable[[], Instruction], ...] = (
        lambda: instruction(rng.choice(("vpadd", "vpsub", "vpmins", "vpmaxu", "vpcmpeq", "vpcmpgt")) + letter, a, b,
                            third),
        lambda: instruction(rng.choice(("vpcmpgtq", "vpcmpeqq", "vpmuldq", "vpmullw", "vpmulld", "vpackssdw",
                                        "vpackuswb", "vpacksswb", "vpandn", "vandnpd", "vunpcklpd")), a, b, third),
        lambda: instruction(rng.choice(("vpsll", "vpsrl", "vpsra")) + rng.choice("wd"), a, b, rng.randrange(32)),
        lambda: instruction(rng.choice(("vblendvpd", "vblendvps", "vpblendvb")), a, b, c, vector(rng, kind)),
        lambda: instruction(rng.choice(("vpmovzxbd", "vpmovsxwq", "vpmovsxdq")), a, x),
        lambda: instruction("vpmovzxbw", y, rng.choice((x, memory(rng, 16)))),
        lambda: instruction(rng.choice(("vcvtdq2pd", "vcvtps2pd")), a, x),
        lambda: instruction(rng.choice(("vcvtpd2ps", "vcvttpd2dq")), x, y),
        lambda: instruction("vpinsrb", x, x, memory(rng, 1), rng.randrange(16)),
        lambda: instruction("vpinsrw", x, x, memory(rng, 2), rng.randrange(8)),
        lambda: instruction("vpextrb", memory(rng, 1), x, rng.randrange(16)),
        lambda: instruction("vpextrw", memory(rng, 2), x, rng.randrange(8)),
        lambda: instruction("vextractps", memory(rng, 4), x, rng.randrange(4)),
        lambda: instruction("vinsertps", x, x, memory(rng, 4), rng.randrange(256)),
        lambda: instruction("vmovhpd", *rng.choice(((x, x, memory(rng, 8)), (memory(rng, 8), x)))),
        lambda: instruction("vpbroadcast" + rng.choice("bwdq"), a, x),
        lambda: instruction("vmovddup", x, memory(rng, 8)),
        lambda: instruction("vpermpd", y, rng.choice((y, memory(rng, 32))), rng.randrange(256)),
        lambda: instruction("vcvtsi2sd", x, x, rng.choice((gpr(rng), memory(rng, 8)))),
        lambda: instruction("vcvttsd2si", gpr(rng, rng.choice((32, 64))), x),
        lambda: instruction("vmovq", *rng.choice(((x, gpr(rng)), (gpr(rng), x)))),
        lambda: instruction("vmovd", *rng.choice(((x, gpr(rng, 32)), (gpr(rng, 32), x), (memory(rng, 4), x)))),
        lambda: instruction("vcmpsd", x, x, x, rng.randrange(8)),
    )
    return rng.choice(choices)()


def sse_integer(rng: random.Random) -> Instruction:
    a, b = vector(rng, "x"), vector(rng, "x")
    second = rng.choice((b, memory(rng, 16)))
    low = gpr(rng, 32)
    choices: tuple[Callable[[], Instruction], ...] = (
        lambda: instruction(rng.choice(("paddb", "psubq", "pmullw", "pmuludq", "pminub", "pmaxsw", "pcmpeqd", "pcmpgtw",
                                        "punpcklbw", "punpckldq", "punpcklqdq", "packssdw", "packuswb", "pandn",
                                        "por", "andnps")), a, second),
        lambda: instruction(rng.choice(("psllw", "psrld", "psraw", "psrlq")), a, rng.randrange(64)),
        lambda: instruction(rng.choice(("pshufd", "pshuflw")), a, b, rng.randrange(256)),
        lambda: instruction("pinsrw", a, memory(rng, 2), rng.randrange(8)),
        lambda: instruction("pextrw", low, a, rng.randrange(8)),
        lambda: instruction("movd", *rng.choice(((a, low), (low, a), (a, memory(rng, 4)), (memory(rng, 4), a)))),
        lambda: instruction(rng.choice(("cvtdq2pd", "cvtps2pd", "cvtpd2ps", "cvttpd2dq", "cvtdq2ps", "cvttps2dq")),
                            a, b),
        lambda: instruction(rng.choice(("cvtsi2sd", "cvtsi2ss")), a, rng.choice((gpr(rng), low, memory(rng, 8)))),
        lambda: instruction(rng.choice(("cvttsd2si", "cvttss2si")), gpr(rng, rng.choice((32, 64))), a),
        lambda: instruction(rng.choice(("movntpd", "movntps", "movntdq")), memory(rng, 16), a),
        lambda: instruction("cmpsd", a, b, rng.randrange(8)),
    )
    return rng.choice(choices)()


def gnu(instructions: tuple[Instruction, ...], folder: Path) -> bytes:
    source, target, flat = (folder / name for name in ("forms.s", "forms.o", "forms.bin"))
    source.write_text(".intel_syntax noprefix\n" + "\n".join(map(str, instructions)) + "\n")
    subprocess.run(["as", "-o", str(target), str(source)], check=True, capture_output=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", str(target), str(flat)], check=True)
    return flat.read_bytes()


def texts(code: bytes) -> list[str]:
    return [f"{i.mnemonic.replace('movabs', 'mov')} {i.operands_text}" for i in decode(code, BASE)]


@pytest.mark.skipif(shutil.which("as") is None, reason="GNU as is not installed")
@pytest.mark.parametrize("maker", [integer, integer_other, sse, sse_integer, vex, vex_integer, evex, evex_other,
                                   evex_integer, masks, gathers])
def test_agrees_with_gnu_as(maker: Maker, tmp_path: Path) -> None:
    rng = random.Random(maker.__name__)
    instructions = tuple(maker(rng) for _ in range(1500))
    ours, theirs = texts(assemble(instructions, BASE).code), texts(gnu(instructions, tmp_path))
    assert len(ours) == len(instructions)
    assert [(str(i), o, t) for i, o, t in zip(instructions, ours, theirs, strict=True) if o != t] == []


def test_every_displacement_of_a_broadcast_and_a_full_vector() -> None:
    shapes = ((64, 0), (8, 8))
    places = [Mem("r13", "rbp", 8, d, size, repeat) for d in range(-8300, 8300, 4) for size, repeat in shapes]
    code = assemble(tuple(instruction("vaddpd", "zmm17", "zmm30", place) for place in places), BASE).code
    for place, found in zip(places, decode(code, BASE), strict=True):
        sign = "-" if place.displacement < 0 else "+"
        expected = f" {sign} {abs(place.displacement):#x}" if place.displacement else ""
        number = expected if abs(place.displacement) > 9 else expected.replace("0x", "")
        assert f"[r13 + rbp*8{number}]" in found.operands_text
