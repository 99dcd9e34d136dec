"""Forms of instructions, SSE to AVX2, FMA and the bit instructions, for a sweep over all that lifting may accept.

A form is one instruction in Intel syntax. It reads xmm0/ymm0 (what its destination holds), xmm1/ymm1, xmm2/ymm2, r9 and
``[rdx+rax]``, and writes xmm0/ymm0, r10 or the flags. A form that writes flags ends with what makes a number of them.
"""

from __future__ import annotations

from collections.abc import Iterator

_FLOATS = ("pd", "ps", "sd", "ss")
_MEMORY = {"xmm": "xmmword ptr [rdx+rax]", "ymm": "ymmword ptr [rdx+rax]", "sd": "qword ptr [rdx+rax]",
           "ss": "dword ptr [rdx+rax]"}


def families() -> dict[str, tuple[str, ...]]:
    """All forms, by families."""
    return {name: tuple(dict.fromkeys(made())) for name, made in _FAMILIES.items()}


def _two(name: str, kind: str = "", immediate: str = "") -> Iterator[str]:
    """``name xmm0, xmm1`` and its AVX forms with two sources, from a register and from memory."""
    memory = _MEMORY.get(kind, _MEMORY["xmm"])
    yield f"{name} xmm0, xmm1{immediate}"
    yield f"{name} xmm0, {memory}{immediate}"
    yield f"v{name} xmm0, xmm1, xmm2{immediate}"
    yield f"v{name} xmm0, xmm1, {memory}{immediate}"
    if kind not in ("sd", "ss"):
        yield f"v{name} ymm0, ymm1, ymm2{immediate}"
        yield f"v{name} ymm0, ymm1, {_MEMORY['ymm']}{immediate}"


def _one(name: str, immediate: str = "") -> Iterator[str]:
    """The same with one source."""
    yield f"{name} xmm0, xmm1{immediate}"
    yield f"{name} xmm0, {_MEMORY['xmm']}{immediate}"
    yield f"v{name} xmm0, xmm1{immediate}"
    yield f"v{name} ymm0, ymm1{immediate}"
    yield f"v{name} ymm0, {_MEMORY['ymm']}{immediate}"


def _arithmetic() -> Iterator[str]:
    for kind in _FLOATS:
        for name in ("add", "sub", "mul", "div", "min", "max"):
            yield from _two(name + kind, kind)
    for name in ("hadd", "hsub", "addsub"):
        for kind in ("pd", "ps"):
            yield from _two(name + kind, kind)
    for name in ("sqrtpd", "sqrtps", "rcpps", "rsqrtps"):
        yield from _one(name)
    for name in ("sqrtsd", "sqrtss", "rcpss", "rsqrtss"):
        yield from _two(name, name[-2:])
    for register in ("xmm1, xmm1", "xmm2, xmm1"):
        yield from (f"v{name} xmm0, {register}" for name in ("addsd", "mulss", "subsd", "divss", "minsd", "maxss"))
    for immediate in (0x31, 0xFF, 0x71):
        yield from (form for form in _two("dppd", "", f", {immediate}") if "ymm" not in form)
        yield from _two("dpps", "", f", {immediate}")


def _fused() -> Iterator[str]:
    for name in ("fmadd", "fmsub", "fnmadd", "fnmsub"):
        for order in ("132", "213", "231"):
            for kind in _FLOATS:
                yield f"v{name}{order}{kind} xmm0, xmm1, xmm2"
                yield f"v{name}{order}{kind} xmm0, xmm1, {_MEMORY[kind if kind[0] == 's' else 'xmm']}"
                if kind[0] == "p":
                    yield f"v{name}{order}{kind} ymm0, ymm1, ymm2"
    for name in ("fmaddsub", "fmsubadd"):
        yield from (f"v{name}{order}{kind} {r}0, {r}1, {r}2" for order in ("132", "213", "231")
                    for kind in ("pd", "ps") for r in ("xmm", "ymm"))


def _comparisons() -> Iterator[str]:
    for kind in _FLOATS:
        for predicate in range(12):
            yield f"cmp{kind} xmm0, xmm1, {predicate}"
        yield f"cmp{kind} xmm0, {_MEMORY[kind if kind[0] == 's' else 'xmm']}, 1"
        for predicate in range(32):
            yield f"vcmp{kind} xmm0, xmm1, xmm2, {predicate}"
            if kind[0] == "p":
                yield f"vcmp{kind} ymm0, ymm1, ymm2, {predicate}"
            else:
                yield f"vcmp{kind} xmm0, xmm1, {_MEMORY[kind]}, {predicate}"
    for name in ("comisd", "comiss", "ucomisd", "ucomiss"):
        for v in ("", "v"):
            yield from (f"{v}{name} xmm0, xmm1; set{c} r10b; movzx r10d, r10b"
                        for c in ("a", "ae", "b", "be", "e", "ne", "p", "np"))
            yield f"{v}{name} xmm0, {_MEMORY['s' + name[-1]]}; seta r10b; movzx r10d, r10b"
            yield f"{v}{name} xmm0, xmm1; mov r10, r9"
            yield f"{v}{name} xmm0, xmm1; add r9, 1; mov r10, r9"
            yield f"{v}{name} xmm0, xmm1; ja 2f; addsd xmm0, xmm2; 2: "
            yield f"{v}{name} xmm0, xmm1; jp 2f; mulss xmm0, xmm2; 2: "
            yield f"{v}{name} xmm0, xmm1; jb 2f; movapd xmm0, xmm1; 2: "


def _conversions() -> Iterator[str]:
    for name in ("cvtdq2ps", "cvtps2dq", "cvttps2dq"):
        yield from _one(name)
    for name in ("cvtdq2pd", "cvtps2pd"):
        yield from (f"{name} xmm0, xmm1", f"{name} xmm0, qword ptr [rdx+rax]", f"v{name} xmm0, xmm1",
                    f"v{name} ymm0, xmm1", f"v{name} ymm0, {_MEMORY['xmm']}")
    for name in ("cvtpd2ps", "cvtpd2dq", "cvttpd2dq"):
        yield from (f"{name} xmm0, xmm1", f"{name} xmm0, {_MEMORY['xmm']}", f"v{name} xmm0, xmm1",
                    f"v{name} xmm0, ymm1", f"v{name} xmm0, {_MEMORY['ymm']}")
    for name, kind in (("cvtss2sd", "ss"), ("cvtsd2ss", "sd")):
        yield from _two(name, kind)
    for kind in ("sd", "ss"):
        for register in ("r10d", "r10"):
            for cut in ("cvt", "cvtt"):
                yield from (f"{v}{cut}{kind}2si {register}, {source}" for v in ("", "v")
                            for source in ("xmm1", _MEMORY[kind]))
        for source in ("r9d", "r9", "dword ptr [rdx+rax]", "qword ptr [rdx+rax]"):
            yield f"cvtsi2{kind} xmm0, {source}"
            yield f"vcvtsi2{kind} xmm0, xmm1, {source}"
    for immediate in range(16):
        yield from (f"{v}round{kind} xmm0, xmm1, {immediate}" for kind in ("pd", "ps") for v in ("", "v"))
        yield from (f"round{kind} xmm0, xmm1, {immediate}" for kind in ("sd", "ss"))
        yield from (f"vround{kind} xmm0, xmm1, xmm2, {immediate}" for kind in ("sd", "ss"))
        yield from (f"vround{kind} ymm0, ymm1, {immediate}" for kind in ("pd", "ps"))
    yield from ("vcvtph2ps ymm0, xmm1", "vcvtph2ps xmm0, xmm1", "vcvtps2ph xmm0, ymm1, 0", "vcvtps2ph xmm0, xmm1, 4",
                "cvtps2pi mm0, xmm1; movq2dq xmm0, mm0", "cvtpi2pd xmm0, qword ptr [rdx+rax]")


def _moves() -> Iterator[str]:
    for name in ("movapd", "movaps", "movupd", "movups", "movdqa", "movdqu", "movddup", "movshdup", "movsldup"):
        yield from _one(name) if name != "movddup" else (
            "movddup xmm0, xmm1", "movddup xmm0, qword ptr [rdx+rax]", "vmovddup ymm0, ymm1", "vmovddup xmm0, xmm1")
    for kind in ("sd", "ss"):
        yield from (f"mov{kind} xmm0, xmm1", f"mov{kind} xmm0, {_MEMORY[kind]}", f"vmov{kind} xmm0, xmm1, xmm2",
                    f"vmov{kind} xmm0, {_MEMORY[kind]}")
    for name in ("movhlps", "movlhps"):
        yield from (f"{name} xmm0, xmm1", f"v{name} xmm0, xmm1, xmm2")
    for name in ("movlpd", "movhpd", "movlps", "movhps"):
        yield from (f"{name} xmm0, qword ptr [rdx+rax]", f"v{name} xmm0, xmm1, qword ptr [rdx+rax]")
    yield from ("movq xmm0, xmm1", "vmovq xmm0, xmm1", "movq xmm0, r9", "movd xmm0, r9d", "movq r10, xmm1",
                "movd r10d, xmm1", "vmovd xmm0, r9d", "vmovq xmm0, qword ptr [rdx+rax]", "lddqu xmm0, [rdx+rax]",
                "movntdqa xmm0, [rdx+rax]", "vlddqu ymm0, [rdx+rax]", "vzeroupper", "vzeroall")
    yield from (f"{v}movmsk{kind} r10d, {r}1" for v, r in (("", "xmm"), ("v", "xmm"), ("v", "ymm"))
                for kind in ("pd", "ps"))
    for name in ("vbroadcastss xmm0", "vbroadcastss ymm0", "vbroadcastsd ymm0"):
        yield from (f"{name}, xmm1", f"{name}, {_MEMORY['s' + name.split()[0][-1]]}")
    yield from ("vbroadcastf128 ymm0, [rdx+rax]", "vbroadcasti128 ymm0, [rdx+rax]")
    for size, memory in zip("bwdq", ("byte", "word", "dword", "qword"), strict=True):
        yield from (f"vpbroadcast{size} {r}0, {source}" for r in ("xmm", "ymm")
                    for source in ("xmm1", f"{memory} ptr [rdx+rax]"))
    for name in ("f128", "i128"):
        yield from (f"vextract{name} xmm0, ymm1, {n}" for n in (0, 1))
        yield from (f"vinsert{name} ymm0, ymm1, xmm2, {n}" for n in (0, 1))
        yield from (f"vperm2{name} ymm0, ymm1, ymm2, {n}" for n in (0, 1, 0x12, 0x20, 0x31, 0x83, 0x38))
    yield from ("vmaskmovps ymm0, ymm1, [rdx+rax]", "vmaskmovpd xmm0, xmm1, [rdx+rax]",
                "vpmaskmovd ymm0, ymm1, [rdx+rax]", "vpmaskmovq xmm0, xmm1, [rdx+rax]")


def _shuffles() -> Iterator[str]:
    for name in ("unpcklpd", "unpckhpd", "unpcklps", "unpckhps"):
        yield from _two(name)
    for immediate in (0, 1, 2, 5, 0x1B, 0x4E, 0xE4, 0xFF):
        yield from _two("shufps", "", f", {immediate}")
        yield from _two("shufpd", "", f", {immediate & 3}")
        yield from _two("blendpd", "", f", {immediate & 3}")
        yield from _two("blendps", "", f", {immediate & 15}")
        yield from _two("pblendw", "", f", {immediate}")
        yield from _two("palignr", "", f", {immediate & 31}")
        yield from (f"vpblendd {r}0, {r}1, {r}2, {immediate & (15 if r == 'xmm' else 255)}" for r in ("xmm", "ymm"))
        for name in ("pshufd", "pshuflw", "pshufhw"):
            yield from _one(name, f", {immediate}")
        yield from (f"vpermil{kind} {r}0, {r}1, {immediate & limit}" for kind, limit in (("pd", 3), ("ps", 255))
                    for r in ("xmm", "ymm"))
        yield from (f"{name} ymm0, ymm1, {immediate}" for name in ("vpermq", "vpermpd"))
        yield from (f"insertps xmm0, xmm1, {immediate}", f"vinsertps xmm0, xmm1, xmm2, {immediate}",
                    f"insertps xmm0, dword ptr [rdx+rax], {immediate & 0x3F}")
    yield from (f"vpermil{kind} {r}0, {r}1, {r}2" for kind in ("pd", "ps") for r in ("xmm", "ymm"))
    yield from ("vpermd ymm0, ymm1, ymm2", "vpermps ymm0, ymm1, ymm2", "pshufb xmm0, xmm1", "vpshufb ymm0, ymm1, ymm2")
    yield from (f"extractps r10d, xmm1, {n}" for n in range(4))
    for name, count, register in (("b", 16, "r9d"), ("w", 8, "r9d"), ("d", 4, "r9d"), ("q", 2, "r9")):
        target = {"r9d": "r10d", "r9": "r10"}[register]
        for number in sorted({0, 1, count - 1}):
            yield from (f"pinsr{name} xmm0, {register}, {number}", f"vpinsr{name} xmm0, xmm1, {register}, {number}",
                        f"pextr{name} {target}, xmm1, {number}", f"vpextr{name} {target}, xmm1, {number}")
    for kind in ("pd", "ps"):
        yield from (f"blendv{kind} xmm1, xmm2, xmm0; movaps xmm0, xmm1", f"vblendv{kind} ymm0, ymm1, ymm2, ymm0",
                    f"vblendv{kind} xmm0, xmm1, xmm2, xmm0")
    yield from ("pblendvb xmm1, xmm2, xmm0; movaps xmm0, xmm1", "vpblendvb ymm0, ymm1, ymm2, ymm0")


def _bitwise() -> Iterator[str]:
    for name in ("and", "andn", "or", "xor"):
        for kind in ("pd", "ps"):
            yield from _two(name + kind)
    for name in ("pand", "pandn", "por", "pxor"):
        yield from _two(name)
    yield from ("xorps xmm0, xmm0", "vxorpd ymm0, ymm1, ymm1", "pcmpeqd xmm0, xmm0", "vpcmpeqd ymm0, ymm1, ymm1")
    for name in ("ptest", "vtestps", "vtestpd"):
        for condition in ("e", "b", "a"):
            yield f"{name} xmm0, xmm1; set{condition} r10b; movzx r10d, r10b"


_INTEGER = (
    *(f"p{name}{size}" for name in ("add", "sub") for size in "bwdq"),
    *(f"p{name}{size}" for name in ("adds", "addus", "subs", "subus") for size in "bw"),
    "pmullw", "pmulhw", "pmulhuw", "pmulld", "pmuludq", "pmuldq", "pmaddwd", "pmaddubsw", "pmulhrsw", "pavgb", "pavgw",
    *(f"p{name}{size}" for name in ("mins", "minu", "maxs", "maxu") for size in "bwd"),
    *(f"pcmp{name}{size}" for name in ("eq", "gt") for size in "bwdq"),
    "packsswb", "packssdw", "packuswb", "packusdw", *(f"punpck{side}{size}" for side in "lh" for size in
                                                      ("bw", "wd", "dq", "qdq")),
    *(f"psign{size}" for size in "bwd"), *(f"ph{name}" for name in ("addw", "addd", "addsw", "subw", "subd", "subsw")),
    "psadbw",
)


def _integers() -> Iterator[str]:
    for name in _INTEGER:
        yield from _two(name)
    for name in ("pabsb", "pabsw", "pabsd"):
        yield from _one(name)
    for name in (*(f"ps{n}{size}" for n in ("ll", "rl") for size in "wdq"), "psraw", "psrad"):
        yield from (f"{name} xmm0, xmm1", f"v{name} xmm0, xmm1, xmm2", f"v{name} ymm0, ymm1, xmm2",
                    f"v{name} ymm0, ymm1, {_MEMORY['xmm']}")
        for count in (0, 1, 7, 15, 31, 40, 63, 64):
            yield from (f"{name} xmm0, {count}", f"v{name} ymm0, ymm1, {count}")
    for name in ("pslldq", "psrldq"):
        for count in (1, 4, 8, 15, 16):
            yield from (f"{name} xmm0, {count}", f"v{name} ymm0, ymm1, {count}")
    yield from (f"v{name} {r}0, {r}1, {r}2" for name in ("psllvd", "psllvq", "psrlvd", "psrlvq", "psravd")
                for r in ("xmm", "ymm"))
    for pair in ("bw", "bd", "bq", "wd", "wq", "dq"):
        yield from (f"{v}pmov{sign}x{pair} {r}0, xmm1" for v, r in (("", "xmm"), ("v", "xmm"), ("v", "ymm"))
                    for sign in "sz")
    yield from ("pmovmskb r10d, xmm1", "vpmovmskb r10d, ymm1", "phminposuw xmm0, xmm1", "mpsadbw xmm0, xmm1, 5",
                "pclmulqdq xmm0, xmm1, 16", "aesenc xmm0, xmm1", "aesdec xmm0, xmm1", "aesimc xmm0, xmm1",
                "pcmpistri xmm0, xmm1, 0; mov r10d, ecx", "pcmpistrm xmm1, xmm2, 0")


def _general() -> Iterator[str]:
    for register, target in (("r9d", "r10d"), ("r9", "r10")):
        yield from (f"{name} {target}, {register}" for name in ("popcnt", "lzcnt", "tzcnt", "blsi", "blsr", "blsmsk"))
        yield from (f"mov {target}, [rdx+rax]; {name} {target}, {register}, {target}"
                    for name in ("andn", "pdep", "pext"))
        yield from (f"mov {target}, [rdx+rax]; {name} {target}, {target}, {register}"
                    for name in ("bextr", "bzhi", "shlx", "sarx", "shrx"))
        yield from (f"mov {target}, [rdx+rax]; {name} {target}, {register}"
                    for name in ("imul", "adc", "sbb", "bsf", "bsr", "add", "xor", "cmovs"))
        yield from (f"rorx {target}, {register}, 5", f"mov {target}, {register}; rol {target}, 9",
                    f"mov {target}, {register}; sar {target}, 3", f"mov {target}, {register}; bswap {target}",
                    f"mov {target}, [rdx+rax]; shld {target}, {register}, 7", f"movbe {target}, [rdx+rax]",
                    f"mov r10d, 1; crc32 {target}, {register}", f"mov {target}, {register}; neg {target}")
    yield from (f"{name} {target}, {source}" for name in ("movsx", "movzx") for target in ("r10d", "r10")
                for source in ("r9b", "r9w", "byte ptr [rdx+rax]", "word ptr [rdx+rax]"))
    yield "movsxd r10, r9d"


_FAMILIES = {"arithmetic": _arithmetic, "fused": _fused, "comparisons": _comparisons, "conversions": _conversions,
             "moves": _moves, "shuffles": _shuffles, "bitwise": _bitwise, "integers": _integers, "general": _general}
