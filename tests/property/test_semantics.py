"""Operations of memopt against the processor: snippets run natively and in the interpreter of tests/support.

Every snippet starts from random registers, flags clear, rsi and rdi pointing into a buffer of its own; afterwards all
general registers, all vector lanes and the buffer must be equal.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.effort import some
from tests.support.interpreter import Machine

GENERAL = ("rax", "rcx", "rdx", "rbx", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
BUFFER = 1024
STATES = int(os.environ.get("MEMOPT_TEST_STATES", "8"))  # random states a snippet

INTEGER = [
    "add %rbx, %rax", "sub %ecx, %edx", "add %cl, %dl", "sub %r9w, %r10w", "lea 5(%rax,%rcx,4), %rdx",
    "lea -1(%r8), %eax", "lea (%rdx,%rdx,2), %r8d", "imul %rcx, %rax", "imul %ecx, %eax", "imul $-7, %ecx, %edx",
    "imul $100, %r9, %r10", "shl $3, %rax", "shl $5, %ecx", "sar $2, %rdx", "sar $31, %r10d", "shr $7, %eax",
    "shl %cl, %rax", "sar %cl, %edx", "shr %cl, %r8d", "shl %rax", "movslq %ecx, %rax", "cltq", "cltd", "cqto",
    "cwtl", "movzbl %al, %ecx", "movsbl %dl, %ecx", "movzwl %r8w, %r9d", "movswq %r8w, %r9", "mov %ah, %bl",
    "mov %cl, %ah", "add %ah, %dh", "mov %ax, %cx", "mov $-5, %rax", "movabs $0x123456789abcdef0, %rcx",
    "neg %rax", "neg %ecx", "not %rdx", "not %r8d", "inc %rax", "dec %ecx", "xor %eax, %eax", "and $-16, %rax",
    "and $0xff, %ecx", "or %rcx, %rdx", "xor %r8d, %r9d", "xchg %rax, %rbx", "bswap %rax", "bswap %ecx",
    "mul %rcx", "imul %rcx", "mul %ecx", "imul %r8d", "rol $9, %rax", "ror $3, %ecx",
    "cqto; mov $17, %ecx; idiv %rcx", "cltd; mov $-9, %ecx; idiv %ecx", "xor %edx, %edx; or $1, %rcx; div %rcx",
    "xor %edx, %edx; or $1, %ecx; div %ecx", "tzcnt %rcx, %rax",
    "lzcnt %ecx, %eax", "popcnt %rcx, %rax", "andn %rax, %rbx, %rcx", "shlx %rax, %rbx, %rcx",
    "sarx %eax, %ebx, %ecx", "mulx %rax, %rbx, %rcx", "shld $7, %rax, %rbx", "movbe %rax, 8(%rsi)",
    "bt $3, %eax; adc $0, %ecx", "bt $40, %rax; setc %dl", "add %rax, %rbx; adc %rcx, %rdx",
    "sub %rax, %rbx; sbb %rcx, %rdx", "sub %rax, %rbx; sbb %ecx, %ecx", "cmp %eax, %ecx; sbb $-1, %edx",
    "btc $5, %rax", "bts $40, %rcx", "cmc; adc %eax, %ebx", "cmpxchg %ecx, %edx", "xadd %rax, %rbx",
]
MEMORY = [
    "mov (%rsi), %rax", "mov 8(%rsi), %ecx", "movzbl 3(%rsi), %edx", "movsbq 5(%rdi), %r8", "mov %rax, 16(%rdi)",
    "mov %ecx, 4(%rdi)", "mov %dl, 1(%rdi)", "mov %ax, 2(%rdi)", "movw $-2, 6(%rdi)", "movl $7, (%rdi)",
    "movq $-7, (%rdi)", "addl $1, 12(%rdi)", "add %rax, (%rdi)", "sub 8(%rsi), %rcx", "incl (%rdi)",
    "imul 4(%rsi), %eax", "and $31, %ecx; mov (%rsi,%rcx,8), %rax", "and $31, %edx; add %eax, 4(%rdi,%rdx,4)",
    "cmp %rax, (%rsi); setl %cl", "movslq 4(%rsi), %rdx", "mov %ch, (%rdi)", "xor %rax, (%rdi)", "notl (%rdi)",
    "negq 8(%rdi)", "shll $2, (%rdi)", "movnti %rax, (%rdi)", "prefetcht0 (%rsi)", "nopw 0(%rax,%rax)", "endbr64",
]
SCALAR_FLOAT = [
    "movsd (%rsi), %xmm0", "movss 4(%rsi), %xmm1", "movsd %xmm1, %xmm0", "movss %xmm1, %xmm0", "movsd %xmm3, 8(%rdi)",
    "movss %xmm3, 4(%rdi)", "movq %xmm1, %rax", "movq %rax, %xmm1", "movd %ecx, %xmm2", "movd %xmm2, %ecx",
    "movq %xmm1, %xmm2", "movlpd 8(%rsi), %xmm0", "movhpd 8(%rsi), %xmm0", "movhpd %xmm0, 8(%rdi)",
    "movlps %xmm1, (%rdi)", "addsd %xmm1, %xmm0", "subsd %xmm1, %xmm0", "mulsd %xmm1, %xmm0", "divsd %xmm1, %xmm0",
    "addss %xmm1, %xmm0", "subss %xmm1, %xmm0", "mulss %xmm1, %xmm0", "divss %xmm1, %xmm0", "addsd (%rsi), %xmm3",
    "mulss (%rsi), %xmm3", "sqrtsd %xmm1, %xmm0", "sqrtss %xmm1, %xmm0", "sqrtsd 8(%rsi), %xmm0",
    "maxsd %xmm1, %xmm0", "minsd %xmm1, %xmm0", "maxss %xmm1, %xmm0", "minss %xmm1, %xmm0",
    "cvtsi2sd %ecx, %xmm0", "cvtsi2sd %rcx, %xmm0", "cvtsi2ss %ecx, %xmm0", "cvtsi2ss %rcx, %xmm0",
    "cvtsi2sd %rcx, %xmm0; cvtsd2ss %xmm0, %xmm1; cvtsi2ss %rcx, %xmm2; cvtsi2sd %rcx, %xmm3",
    "cvtsi2ss %rax, %xmm0; cvtsi2sd %rax, %xmm1; cvtsd2ss %xmm1, %xmm2", "cvtsi2ssq 8(%rsi), %xmm0",
    "cvtsi2sdl 4(%rsi), %xmm0", "cvtss2sd %xmm1, %xmm0", "cvtsd2ss %xmm1, %xmm0", "cvtss2sd 4(%rsi), %xmm0",
    "cvttsd2si %xmm1, %eax", "cvttsd2si %xmm1, %rax", "cvttss2si %xmm1, %eax", "cvttss2si %xmm1, %rax",
    "cvtsd2si %xmm1, %eax", "cvtsd2si %xmm1, %rax", "cvtss2si %xmm1, %eax", "roundsd $1, %xmm1, %xmm0",
    "roundsd $3, %xmm1, %xmm0", "roundss $2, %xmm1, %xmm0", "roundsd $4, %xmm1, %xmm0",
    "cmpltsd %xmm1, %xmm0", "cmpeqsd %xmm1, %xmm0", "cmpunordsd %xmm1, %xmm0", "cmpnless %xmm1, %xmm0",
    "cmpless %xmm1, %xmm0", "cmpneqsd %xmm1, %xmm0", "cmpordsd %xmm1, %xmm0",
    "ucomisd %xmm1, %xmm0; seta %al; setb %bl; sete %cl; setp %dl; setae %r8b; setbe %r9b; setne %r10b; setnp %r11b",
    "comiss %xmm1, %xmm0; seta %al; setb %bl; sete %cl; setp %dl; setae %r8b; setbe %r9b; setne %r10b",
    "ucomisd %xmm0, %xmm0; jp 1f; mov $1, %eax; 1:", "ucomisd (%rsi), %xmm0; ja 1f; addsd %xmm2, %xmm0; 1:",
    "ucomiss %xmm1, %xmm0; jbe 1f; movaps %xmm1, %xmm0; 1:", "addsd %xmm0, %xmm0; mulsd %xmm0, %xmm0",
]
PACKED_FLOAT = [
    "movapd %xmm1, %xmm0", "movaps (%rsi), %xmm0", "movups 5(%rsi), %xmm0", "movupd %xmm0, 7(%rdi)",
    "movapd %xmm5, 16(%rdi)", "movdqa %xmm1, %xmm2", "movdqu 3(%rsi), %xmm2", "movntpd %xmm1, (%rdi)",
    "movhlps %xmm1, %xmm0", "movlhps %xmm1, %xmm0", "movddup %xmm1, %xmm0", "movddup 8(%rsi), %xmm0",
    "movshdup %xmm1, %xmm0", "movsldup %xmm1, %xmm0", "unpcklpd %xmm1, %xmm0", "unpckhpd %xmm1, %xmm0",
    "unpcklps %xmm1, %xmm0", "unpckhps %xmm1, %xmm0", "shufpd $1, %xmm1, %xmm0", "shufpd $2, %xmm1, %xmm0",
    "shufps $0x1b, %xmm1, %xmm0", "shufps $0xe4, %xmm1, %xmm0", "shufps $0, %xmm1, %xmm1", "pshufd $0x4e, %xmm1, %xmm0",
    "pshuflw $0x1b, %xmm1, %xmm0", "pshufhw $0x1b, %xmm1, %xmm0",
    "addpd %xmm1, %xmm0", "subpd %xmm1, %xmm0", "mulpd %xmm1, %xmm0", "divpd %xmm1, %xmm0", "addps %xmm1, %xmm0",
    "subps %xmm1, %xmm0", "mulps %xmm1, %xmm0", "divps %xmm1, %xmm0", "mulpd (%rsi), %xmm0", "addps 16(%rsi), %xmm0",
    "sqrtpd %xmm1, %xmm0", "sqrtps %xmm1, %xmm0", "maxpd %xmm1, %xmm0", "minpd %xmm1, %xmm0", "maxps %xmm1, %xmm0",
    "minps %xmm1, %xmm0", "haddpd %xmm1, %xmm0", "haddps %xmm1, %xmm0", "hsubpd %xmm1, %xmm0", "addsubpd %xmm1, %xmm0",
    "hsubps %xmm1, %xmm0", "addsubps %xmm1, %xmm0", "cvtps2dq %xmm1, %xmm0", "roundps $2, %xmm1, %xmm0",
    "andpd %xmm1, %xmm0", "andnpd %xmm1, %xmm0", "orps %xmm1, %xmm0", "xorps %xmm1, %xmm0", "pxor %xmm1, %xmm0",
    "xorps %xmm0, %xmm0", "pxor %xmm3, %xmm3", "pcmpeqd %xmm1, %xmm1", "cvtps2pd %xmm1, %xmm0",
    "cvtpd2ps %xmm1, %xmm0", "cvtdq2pd %xmm1, %xmm0", "cvtdq2ps %xmm1, %xmm0", "cvttpd2dq %xmm1, %xmm0",
    "cvttps2dq %xmm1, %xmm0", "cvtpd2dq %xmm1, %xmm0", "cmpltpd %xmm1, %xmm0", "cmpleps %xmm1, %xmm0",
    "cmpneqpd %xmm1, %xmm0", "blendpd $1, %xmm1, %xmm0", "blendps $5, %xmm1, %xmm0", "insertps $0x10, %xmm1, %xmm0",
    "movmskpd %xmm1, %eax", "movmskps %xmm1, %eax", "roundpd $1, %xmm1, %xmm0",
    "extractps $2, %xmm1, %eax",
]
PACKED_INTEGER = [
    "paddd %xmm1, %xmm0", "paddq %xmm1, %xmm0", "psubd %xmm1, %xmm0", "paddw %xmm1, %xmm0", "paddb %xmm1, %xmm0",
    "psubq %xmm1, %xmm0", "pmulld %xmm1, %xmm0", "pmullw %xmm1, %xmm0", "pmuludq %xmm1, %xmm0", "pmuldq %xmm1, %xmm0",
    "pand %xmm1, %xmm0", "pandn %xmm1, %xmm0", "por %xmm1, %xmm0", "pslld $3, %xmm0", "psrld $5, %xmm0",
    "psrad $7, %xmm0", "psllq $3, %xmm0", "psrlq $33, %xmm0", "psraw $2, %xmm0", "pslldq $4, %xmm0",
    "psrldq $8, %xmm0", "punpckldq %xmm1, %xmm0", "punpckhdq %xmm1, %xmm0", "punpcklqdq %xmm1, %xmm0",
    "punpckhqdq %xmm1, %xmm0", "punpcklbw %xmm1, %xmm0", "punpckhwd %xmm1, %xmm0", "pcmpeqd %xmm1, %xmm0",
    "pcmpgtd %xmm1, %xmm0", "pcmpeqb %xmm1, %xmm0", "pcmpgtq %xmm1, %xmm0", "pminsd %xmm1, %xmm0",
    "pmaxud %xmm1, %xmm0", "pmaxsd %xmm1, %xmm0", "pmovsxdq %xmm1, %xmm0", "pmovzxdq %xmm1, %xmm0",
    "pmovsxwd %xmm1, %xmm0", "pinsrd $2, %eax, %xmm0", "pinsrq $1, %rax, %xmm0", "pextrd $3, %xmm1, %eax",
    "pextrq $1, %xmm1, %rax", "palignr $4, %xmm1, %xmm0", "pabsd %xmm1, %xmm0", "paddusb %xmm1, %xmm0",
    "paddusw %xmm1, %xmm0", "psubusb %xmm1, %xmm0", "psubusw %xmm1, %xmm0", "paddsb %xmm1, %xmm0",
    "paddsw %xmm1, %xmm0", "psubsb %xmm1, %xmm0", "psubsw %xmm1, %xmm0", "pavgb %xmm1, %xmm0", "pavgw %xmm1, %xmm0",
    "pmaddwd %xmm1, %xmm0", "pmaddubsw %xmm1, %xmm0",
]
AVX = [
    "vmovupd (%rsi), %ymm0", "vmovapd %ymm1, %ymm0", "vmovups %ymm1, 9(%rdi)", "vmovsd (%rsi), %xmm0",
    "vmovsd %xmm1, %xmm2, %xmm3", "vmovss %xmm1, %xmm2, %xmm3", "vmovapd %xmm1, %xmm0", "vaddsd %xmm1, %xmm2, %xmm3",
    "vmulsd (%rsi), %xmm2, %xmm3", "vsubss %xmm1, %xmm2, %xmm3", "vdivsd %xmm1, %xmm2, %xmm3",
    "vaddpd %ymm1, %ymm2, %ymm3", "vmulps %ymm1, %ymm2, %ymm3", "vsubpd (%rsi), %ymm2, %ymm3",
    "vdivps %ymm1, %ymm2, %ymm3", "vaddpd %xmm1, %xmm2, %xmm3", "vsqrtpd %ymm1, %ymm0", "vsqrtsd %xmm1, %xmm2, %xmm3",
    "vmaxpd %ymm1, %ymm2, %ymm3", "vminps %ymm1, %ymm2, %ymm3", "vxorps %xmm0, %xmm0, %xmm0",
    "vxorpd %ymm1, %ymm2, %ymm3", "vandpd %ymm1, %ymm2, %ymm3", "vbroadcastsd 8(%rsi), %ymm0",
    "vbroadcastss 4(%rsi), %ymm0", "vbroadcastsd %xmm1, %ymm0", "vbroadcastss %xmm1, %xmm0",
    "vpermilpd $5, %ymm1, %ymm0",
    "vpermilps $0x1b, %ymm1, %ymm0", "vperm2f128 $1, %ymm1, %ymm2, %ymm3", "vpermpd $0x1b, %ymm1, %ymm0",
    "vextractf128 $1, %ymm1, %xmm0", "vextractf128 $1, %ymm1, 16(%rdi)", "vinsertf128 $1, %xmm1, %ymm2, %ymm3",
    "vinsertf128 $0, (%rsi), %ymm2, %ymm3", "vunpcklpd %ymm1, %ymm2, %ymm3", "vunpckhps %ymm1, %ymm2, %ymm3",
    "vshufpd $5, %ymm1, %ymm2, %ymm3", "vshufps $0x1b, %ymm1, %ymm2, %ymm3", "vhaddpd %ymm1, %ymm2, %ymm3",
    "vhaddps %ymm1, %ymm2, %ymm3",
    "vaddsubpd %ymm1, %ymm2, %ymm3", "vmaxsd (%rsi), %xmm1, %xmm0", "vminss %xmm1, %xmm2, %xmm3",
    "vblendpd $5, %ymm1, %ymm2, %ymm3", "vmovddup %ymm1, %ymm0", "vcvtsi2sd %ecx, %xmm1, %xmm0",
    "vcvtsi2ss %rcx, %xmm1, %xmm0", "vcvtss2sd %xmm1, %xmm2, %xmm3", "vcvtsd2ss %xmm1, %xmm2, %xmm3",
    "vcvtps2pd %xmm1, %ymm0", "vcvtpd2ps %ymm1, %xmm0", "vcvtdq2pd %xmm1, %ymm0", "vcvttsd2si %xmm1, %rax",
    "vucomisd %xmm1, %xmm0; ja 1f; vmovapd %ymm1, %ymm0; 1:", "vzeroupper", "vpaddd %ymm1, %ymm2, %ymm3",
    "vpaddq %ymm1, %ymm2, %ymm3", "vpmuludq %ymm1, %ymm2, %ymm3", "vpand %ymm1, %ymm2, %ymm3",
    "vpslld $3, %ymm1, %ymm0", "vpsrlq $9, %ymm1, %ymm0", "vpunpckldq %ymm1, %ymm2, %ymm3", "vpbroadcastd %xmm1, %ymm0",
    "vpbroadcastq 8(%rsi), %ymm0", "vpermq $0x1b, %ymm1, %ymm0", "vextracti128 $1, %ymm1, %xmm0",
    "vinserti128 $1, %xmm1, %ymm2, %ymm3", "vpmulld %ymm1, %ymm2, %ymm3", "vpcmpeqd %ymm1, %ymm2, %ymm3",
    "vmovd %eax, %xmm0", "vmovq %xmm1, %rax", "vpxor %xmm0, %xmm0, %xmm0", "vmovhpd 8(%rsi), %xmm1, %xmm0",
    "vcmpltpd %ymm1, %ymm2, %ymm3", "vroundsd $1, %xmm1, %xmm2, %xmm3", "vpmovsxdq %xmm1, %ymm0",
    "vunpcklpd %xmm1, %xmm2, %xmm3", "vcmpltsd %xmm1, %xmm2, %xmm3",
]
FMA = [
    f"vf{negated}m{operation}{order}{kind} {source}, %{register}2, %{register}3"
    for negated in ("", "n") for operation in ("add", "sub") for order in ("132", "213", "231")
    for kind, register, source in (("sd", "xmm", "%xmm1"), ("ss", "xmm", "%xmm1"), ("pd", "ymm", "(%rsi)"),
                                   ("ps", "ymm", "%ymm1"))
]
# The encodings with the operands of memory forms the other way round, which assemblers choose where they are shorter.
REVERSED = [
    *(f"{name}.s %rax, %rbx" for name in ("mov", "add", "sub", "xor", "and", "or")), "mov.s %ecx, %edx",
    "cmp.s %rax, %rbx; setl %cl", "add %rax, %rbx; adc.s %rcx, %rdx", "sub %rax, %rbx; sbb.s %rcx, %rdx",
    *(f"{name}.s %xmm1, %xmm2" for name in ("movapd", "movaps", "movupd", "movdqa", "movsd")),
    *(f"vmov{kind}.s %{register}1, %{register}2" for kind in ("apd", "aps", "upd", "ups", "dqa", "dqu")
      for register in ("xmm", "ymm")),
    "vmovsd.s %xmm1, %xmm2, %xmm3", "vmovss.s %xmm1, %xmm2, %xmm3", "vmovsd %xmm8, %xmm8, %xmm0",
    "vmovss %xmm9, %xmm2, %xmm0; vaddss %xmm0, %xmm9, %xmm9",
    "vmovsd.s %xmm1, %xmm1, %xmm3; vmovsd.s %xmm3, %xmm2, %xmm1",
    "vaddsd %xmm1, %xmm2, %xmm3; vmovsd %xmm3, %xmm1, %xmm3; vmulsd %xmm3, %xmm3, %xmm0",
]
SETTERS = [
    "cmp %rbx, %rax", "cmp %ebx, %eax", "cmp %bx, %ax", "cmp %bl, %al", "cmp $5, %eax", "cmp $-1, %rax",
    "test %rax, %rax", "test %ecx, %ecx", "test %bl, %al", "test $3, %eax", "add %rbx, %rax", "add %ebx, %eax",
    "add $1, %cl", "sub $1, %ecx", "inc %ecx", "dec %rcx", "inc %al", "dec %bx", "and %rbx, %rax", "or %ebx, %eax",
    "neg %ecx", "shl $3, %eax", "sar $3, %rax", "shr $1, %eax", "xor %ebx, %eax", "and $15, %ax",
]
CONDITIONS = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "l", "ge", "le", "g")
_NOT_AFTER = {"shl": {"o", "no", "l", "ge", "le", "g"}, "sar": {"o", "no", "l", "ge", "le", "g"},
              "shr": {"o", "no", "l", "ge", "le", "g"}}


def _conditional() -> Iterator[str]:
    """Every condition after every setter: resolved within a block, and through the saved flags across blocks."""
    for setter in SETTERS:
        usable = [c for c in CONDITIONS if c not in _NOT_AFTER.get(setter[:3], ())]
        sets = "; ".join(f"set{c} {n}(%rdi)" for n, c in enumerate(usable))
        yield f"{setter}; {sets}"
        yield f"{setter}; jmp 1f; 1: {sets}"
        yield f"{setter}; cmov{usable[4]} %r9, %r8; cmov{usable[-1]} %r10d, %r11d"
        for condition in usable:
            yield f"{setter}; j{condition} 1f; mov $1, %r15d; 1:"


LOOPS = [
    "mov $7, %ecx; xor %eax, %eax; 1: add %rcx, %rax; dec %ecx; jne 1b",
    "xor %ecx, %ecx; pxor %xmm0, %xmm0; 1: addsd (%rsi,%rcx,8), %xmm0; add $1, %rcx; cmp $9, %rcx; jl 1b",
    ("lea 64(%rsi), %rax; 1: movsd (%rsi), %xmm0; mulsd %xmm1, %xmm0; addsd 8(%rsi), %xmm0; movsd %xmm0, (%rsi); "
     "add $8, %rsi; cmp %rax, %rsi; jne 1b"),
    "and $7, %ecx; jmp 2f; 1: addl $3, (%rdi,%rcx,4); sub $1, %ecx; 2: test %ecx, %ecx; jns 1b",
]
_TWO_OPERANDS = (
    "psubb", "psubw", "pmulhw", "pmulhuw", "paddw", "pcmpeqw", "pcmpgtb", "pcmpgtw", "pcmpeqq", "pminsb",
    "pminsw", "pminub", "pminuw", "pminud", "pmaxsb", "pmaxsw", "pmaxub", "pmaxuw", "pabsb", "pabsw", "psignd",
    "pmovsxbw", "pmovsxbd", "pmovsxbq", "pmovsxwq", "pmovzxbw", "pmovzxbd", "pmovzxbq", "pmovzxwd", "pmovzxwq",
    "packsswb", "packssdw", "packuswb", "packusdw", "punpcklwd", "punpckhbw", "pshufb", "phaddd", "phaddw",
    "phsubd", "cmpeqpd", "cmpunordpd", "cmpnltpd", "cmpnlepd", "cmpordpd", "cmpeqps", "cmpltps", "cmpunordps",
    "cmpneqps", "cmpnltps", "cmpnleps", "cmpordps", "cmpnltsd", "cmpnlesd", "cmpeqss", "cmpltss", "cmpneqss",
    "cmpnltss", "cmpunordss", "cmpordss", "andps", "andnps", "orpd", "xorpd",
)
_THREE_OPERANDS = (
    "vpaddb", "vpaddw", "vpsubb", "vpsubw", "vpsubd", "vpsubq", "vpmullw", "vpmulhw", "vpmulhuw", "vpmuldq",
    "vpandn", "vpor", "vpcmpeqb", "vpcmpeqw", "vpcmpeqq", "vpcmpgtb", "vpcmpgtw", "vpcmpgtd", "vpcmpgtq",
    "vpminsb", "vpminsw", "vpminsd", "vpminub", "vpminuw", "vpminud", "vpmaxsb", "vpmaxsw", "vpmaxsd", "vpmaxub",
    "vpmaxuw", "vpmaxud", "vpackssdw", "vpackuswb", "vpackusdw", "vpacksswb", "vpunpcklbw", "vpunpcklwd",
    "vpunpcklqdq", "vpunpckhbw", "vpunpckhwd", "vpunpckhdq", "vpunpckhqdq", "vpshufb", "vpermd", "vpermps",
    "vpermilps", "vpermilpd", "vphaddd", "vpsignd", "vsubps", "vmulpd", "vdivpd", "vminpd", "vmaxps", "vandps",
    "vandnpd", "vandnps", "vorps", "vorpd", "vunpcklps", "vunpckhpd", "vhsubpd", "vaddsubps",
)
_PREDICATES = [n for n in range(32) if n not in (11, 15, 27, 31)]  # the others are rejected
MORE_PACKED = [
    *(f"{name} %xmm1, %xmm0" for name in _TWO_OPERANDS),
    "psllw $3, %xmm0", "psrlw $8, %xmm0", "psrad $31, %xmm0", "psllq $63, %xmm0", "psrldq $12, %xmm0",
    "pslldq $3, %xmm0", "pshufd $0xf5, %xmm1, %xmm0", "pshuflw $0xe8, %xmm1, %xmm0", "shufps $0x88, %xmm1, %xmm0",
    "shufps $0xdd, %xmm1, %xmm0", "palignr $12, %xmm1, %xmm0", "pblendw $0x33, %xmm1, %xmm0",
    "blendvpd %xmm0, %xmm1, %xmm2", "blendvps %xmm0, %xmm1, %xmm2", "pblendvb %xmm0, %xmm1, %xmm2",
    "insertps $0x4c, %xmm1, %xmm0", "insertps $0x20, 4(%rsi), %xmm0", "pinsrb $3, %eax, %xmm0",
    "pinsrw $3, %eax, %xmm0", "pinsrd $1, 4(%rsi), %xmm0", "pextrb $5, %xmm1, %eax", "pextrw $5, %xmm1, %eax",
    "pextrd $1, %xmm1, 8(%rdi)", "pextrq $1, %xmm1, (%rdi)", "pextrb $1, %xmm1, (%rdi)", "movhps (%rsi), %xmm0",
    "movlps (%rsi), %xmm0", "lddqu 3(%rsi), %xmm0", "movntdq %xmm1, (%rdi)", "movntps %xmm1, (%rdi)",
    "pmovzxbd (%rsi), %xmm0", "pmovzxbw 8(%rsi), %xmm0", "pmovsxdq 8(%rsi), %xmm0", "pmovzxbq 3(%rsi), %xmm0",
    "cvtdq2pd (%rsi), %xmm0", "cvtps2pd 8(%rsi), %xmm0", "cvtsi2sdq 8(%rsi), %xmm0", "cvttss2si 4(%rsi), %ecx",
    "roundpd $0, %xmm1, %xmm0", "roundps $3, %xmm1, %xmm0", "ptest %xmm1, %xmm0; sete %al; setc %bl",
    "imul %rcx, %rax; seto %bl", "imul $3, %rcx, %rax; inc %edx; setc %bl", "mul %rcx; adc $0, %edx",
    "imul %ecx, %edx; dec %r8; jne 1f; mov $3, %r9d; 1:", "mul %ecx; setc %bl; seto %r9b", "imul %cx, %dx; setc %bl",
    "cltd; xor %edx, %eax; sub %edx, %eax", "neg %eax; cmovs %ecx, %eax", "cmp %cl, %dl; cmova %r8w, %r9w",
    "ucomisd %xmm1, %xmm0; cmova %rax, %rbx", "comisd %xmm1, %xmm0; cmovbe %eax, %ebx; setnp %cl",
    "rorx $7, %rax, %rbx", "blsr %rax, %rbx", "shrx %eax, %ebx, %ecx",
]
MORE_AVX = [
    *(f"{name} %ymm1, %ymm2, %ymm3" for name in _THREE_OPERANDS),
    *(f"vcmppd ${n}, %ymm1, %ymm2, %ymm3" for n in _PREDICATES), *(f"vcmpss ${n}, %xmm1, %xmm2, %xmm3" for n in
                                                                  _PREDICATES),
    "vblendvpd %ymm1, %ymm2, %ymm3, %ymm4", "vblendvps %ymm1, %ymm2, %ymm3, %ymm4",
    "vpblendvb %ymm1, %ymm2, %ymm3, %ymm4", "vblendps $0xaa, %ymm1, %ymm2, %ymm3", "vpblendd $3, %xmm1, %xmm2, %xmm3",
    "vpblendw $0xaa, %ymm1, %ymm2, %ymm3", "vperm2f128 $0x21, %ymm1, %ymm2, %ymm3",
    "vperm2f128 $0x81, %ymm1, %ymm2, %ymm3", "vperm2i128 $0x31, %ymm1, %ymm2, %ymm3", "vpermq $0xd8, %ymm1, %ymm2",
    "vpermpd $0xb1, %ymm1, %ymm2", "vshufps $0x88, %ymm1, %ymm2, %ymm3", "vpshufd $0xb1, %ymm1, %ymm2",
    "vpshuflw $0xb1, %ymm1, %ymm2", "vpalignr $8, %ymm1, %ymm2, %ymm3", "vpslldq $4, %ymm1, %ymm2",
    "vpsrad $3, %ymm1, %ymm2", "vpsllw $3, %ymm1, %ymm2", "vpsraw $8, %ymm1, %ymm2", "vpmovzxbd %xmm1, %ymm2",
    "vpmovzxbw %xmm1, %ymm2", "vpmovsxbd %xmm1, %ymm2", "vpmovsxwd (%rsi), %ymm2", "vpmovzxdq %xmm1, %ymm2",
    "vpmovsxbq %xmm1, %ymm2", "vpmovzxbd 3(%rsi), %ymm2", "vpbroadcastb %xmm1, %ymm2", "vpbroadcastw %xmm1, %ymm2",
    "vpbroadcastb 3(%rsi), %xmm2", "vbroadcastf128 (%rsi), %ymm2", "vpinsrd $1, %eax, %xmm1, %xmm2",
    "vpextrw $1, %xmm1, %eax", "vinsertps $0x10, 4(%rsi), %xmm2, %xmm3", "vcvtdq2ps %ymm1, %ymm2",
    "vcvttps2dq %ymm1, %ymm2", "vcvttpd2dq %ymm1, %xmm2", "vcvtpd2dq %ymm1, %xmm2", "vcvtps2pd (%rsi), %ymm2",
    "vroundpd $1, %ymm1, %ymm2", "vpabsd %ymm1, %ymm2", "vptest %ymm1, %ymm2; sete %al", "vmovshdup %ymm1, %ymm2",
    "vmovhlps %xmm1, %xmm2, %xmm3", "vmovntpd %ymm1, (%rdi)", "vzeroall",
    "vcmpltpd %ymm1, %ymm2, %ymm3; vandpd %ymm3, %ymm4, %ymm5; vandnpd %ymm6, %ymm3, %ymm7; vorpd %ymm5, %ymm7, %ymm7",
]
SNIPPETS = [*INTEGER, *MEMORY, *SCALAR_FLOAT, *PACKED_FLOAT, *PACKED_INTEGER, *MORE_PACKED, *_conditional(), *LOOPS]
WIDE_SNIPPETS = [*AVX, *MORE_AVX, *FMA, *REVERSED]


class Native:
    """The snippets in a shared object; ``run`` loads a state from ``state``, runs one and stores the state back."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.state = (ctypes.c_uint64 * (16 + 64)).in_dll(self.library, "state")
        self.memory = (ctypes.c_ubyte * BUFFER).in_dll(self.library, "memory")

    def code(self, number: int) -> tuple[bytes, int]:
        start, end = (ctypes.addressof(ctypes.c_ubyte.in_dll(self.library, f"snippet_{edge}_{number}"))
                      for edge in ("start", "end"))
        return ctypes.string_at(start, end - start), start

    def run(self, number: int) -> None:
        getattr(self.library, f"run_{number}")()


def _source(snippets: list[str]) -> str:
    """Each snippet between code that loads and stores all registers but rsp."""
    moves = {direction: [] for direction in ("load", "store")}
    for index, name in enumerate(GENERAL):
        moves["load"].append(f"mov state+{8 * index}(%rip), %{name}")
        moves["store"].append(f"mov %{name}, state+{8 * index}(%rip)")
    for number in range(16):
        moves["load"].append(f"vmovups state+{128 + 32 * number}(%rip), %ymm{number}")
        moves["store"].append(f"vmovups %ymm{number}, state+{128 + 32 * number}(%rip)")
    saved = ("rbx", "rbp", "r12", "r13", "r14", "r15")
    lines = [".data", ".globl state, memory", ".balign 64", f"memory: .zero {BUFFER}", "state: .zero 640", ".text"]
    for number, snippet in enumerate(snippets):
        lines += [f".globl run_{number}, snippet_start_{number}, snippet_end_{number}", f"run_{number}:"]
        lines += [f"push %{r}" for r in saved] + ["push $0x202", "popfq"] + moves["load"]
        lines += [f"snippet_start_{number}:", *snippet.split("; "), f"snippet_end_{number}:", *moves["store"], "cld"]
        lines += [f"pop %{r}" for r in reversed(saved)] + ["vzeroupper", "ret"]
    return "\n".join(lines) + "\n.section .note.GNU-stack,\"\",@progbits\n"


def _flags_of_this_machine() -> set[str]:
    text = Path("/proc/cpuinfo").read_text()
    return set(next(line for line in text.splitlines() if line.startswith("flags")).split())


needs_avx = pytest.mark.skipif(not {"avx2", "fma", "bmi2"} <= _flags_of_this_machine(), reason="needs AVX2 and FMA")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    directory = tmp_path_factory.mktemp("snippets")
    (directory / "snippets.s").write_text(_source([*SNIPPETS, *WIDE_SNIPPETS]))
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-Bsymbolic", "-o", "snippets.so", "snippets.s"],
                   cwd=directory, check=True)
    return Native(directory / "snippets.so")


_DOUBLES = (0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), 2.0**-1074, 1e308, 3.0, 0.1, 2147483648.5, -2.5)
_PATTERNS = (0x7FF8000000000123, 0xFFF0000000000456, 0x7FC00001FF800002, 0x8000000000000000, 0, 2**64 - 1)


def _lane(source: random.Random) -> int:
    choice = source.randrange(6)
    if choice == 0:
        return int.from_bytes(struct.pack("<d", source.choice(_DOUBLES)), "little")
    if choice == 1:
        return source.choice(_PATTERNS)
    if choice == 2:
        return int.from_bytes(struct.pack("<2f", source.uniform(-9, 9), source.uniform(-1e6, 1e6)), "little")
    if choice == 3:
        return source.getrandbits(64)
    return int.from_bytes(struct.pack("<d", source.uniform(-1, 1) * 2.0 ** source.randrange(-40, 40)), "little")


def _general(source: random.Random) -> int:
    extreme = source.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 128, 255))
    middle = (source.randrange(2**23, 2**24) << 1 | 1) << source.randrange(28, 39)  # of two floats
    beside = middle + source.choice((-1, 0, 1))
    return source.choice((source.getrandbits(64), source.randrange(64), extreme, -source.randrange(99) % 2**64,
                          beside, -beside % 2**64))


def _check(native: Native, number: int, snippet: str) -> None:
    code, start = native.code(number)
    source = random.Random(snippet)
    base = ctypes.addressof(native.memory)
    for _ in range(STATES):
        memory = b"".join(_lane(source).to_bytes(8, "little") for _ in range(BUFFER // 8))
        state = {name: _general(source) for name in GENERAL}
        if source.random() < 0.3:
            state["rbx"] = state["rax"]
        state |= {"rsi": base + 256, "rdi": base + 640}
        vectors = {f"xmm{n}.{lane}": _lane(source) for n in range(16) for lane in range(4)}
        state |= vectors
        ctypes.memmove(native.memory, memory, BUFFER)
        native.state[:len(GENERAL)] = [state[name] for name in GENERAL]
        native.state[16:] = list(vectors.values())
        native.run(number)
        flags = {"cc_op": 0, "cc_dep1": 0, "cc_dep2": 0, "cc_ndep": 0, "mxcsr_round": 0, "d_flag": 1}
        machine = Machine(dict(state) | flags, base, memory)
        machine.run(code, start)
        expected = dict(zip(GENERAL, native.state, strict=False)) | dict(zip(vectors, native.state[16:], strict=True))
        different = {k: (hex(machine.locations[k]), hex(v), hex(state[k])) for k, v in expected.items()
                     if machine.locations[k] != v}
        assert not different, f"{snippet}: location: (ours, processor, before) {different}"
        assert bytes(machine.memory) == bytes(native.memory), f"{snippet}: memory differs"


@needs_avx
@pytest.mark.parametrize("first", some(range(0, len(SNIPPETS), 40), 8))
def test_snippets_agree_with_the_processor(native: Native, first: int) -> None:
    for number, snippet in list(enumerate(SNIPPETS))[first:first + 40]:
        _check(native, number, snippet)


@needs_avx
@pytest.mark.parametrize("first", some(range(0, len(WIDE_SNIPPETS), 40), 3))
def test_wide_snippets_agree_with_the_processor(native: Native, first: int) -> None:
    for number, snippet in list(enumerate(WIDE_SNIPPETS))[first:first + 40]:
        _check(native, len(SNIPPETS) + number, snippet)
