from __future__ import annotations

import pytest
import pyvex

from memopt.ir.operations import RAISING, AlignmentCheck, Compute, Exit, Get, Jump, Literal, Load, Put, Store
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.semantics import lift_block
from tests.support.binaries import assemble

INNER_PRODUCT = (
    "movsd (%rax), %xmm0; mulsd (%rdx), %xmm0; add $8, %rax; add %rsi, %rdx; addsd %xmm0, %xmm1; "
    "movsd %xmm1, (%rcx); cmp %rax, %rdi; jne .-26"
)


def test_inner_product_of_gcc() -> None:
    assert str(lift_block(assemble(INNER_PRODUCT), 0x1240)) == """\
block 0x1240 28
  0x1240
    t0:64 = rax
    xmm0.1 = 0x0:64
    t1:64 = load [t0]
  0x1244
    t2:64 = rdx
    t3:64 = load [t2]
    t4:64 = fmul t1, t3
    xmm0.0 = t4
  0x1248
    t5:64 = add t0, 0x8:64
    rax = t5
  0x124c
    t6:64 = rsi
    t7:64 = add t2, t6
    rdx = t7
  0x124f
    t8:64 = xmm1.0
    t9:64 = fadd t8, t4
    xmm1.0 = t9
  0x1253
    t10:64 = rcx
    store [t10]:64 = t9
  0x1257
    t11:64 = rdi
    cc_op = 0x8:64
    cc_dep1 = t11
    cc_dep2 = t5
  0x125a
    t12:1 = eq t11, t5
    if t12 goto 0x125c
    boring 0x1240"""


def raised(source: str) -> list[str]:
    """The operators that may raise a flag in what the assembly is lifted to, with the literals among their operands."""
    found = []
    for operation in lift_block(assemble(".intel_syntax noprefix\n" + source), 0x1000).operations:
        if isinstance(operation, Compute) and operation.operator in RAISING:
            numbers = [str(o.value) for o in operation.operands if isinstance(o, Literal)]
            found.append(" ".join((operation.operator, *numbers)))
    return found


@pytest.mark.parametrize(("source", "operators"), [
    ("vcmpsd xmm0, xmm1, xmm2, 1", ["flt"]),
    ("vcmpsd xmm0, xmm1, xmm2, 17", ["fqlt"]),
    ("vcmpsd xmm0, xmm1, xmm2, 29", ["fqle"]),
    ("vcmpsd xmm0, xmm1, xmm2, 13", ["fle"]),
    ("vcmpsd xmm0, xmm1, xmm2, 16", ["fseq"]),
    ("vcmpsd xmm0, xmm1, xmm2, 4", ["feq"]),
    ("vcmpsd xmm0, xmm1, xmm2, 19", ["fsunord"]),
    ("vcmpsd xmm0, xmm1, xmm2, 23", ["fsunord"]),
    ("vcmpsd xmm0, xmm1, xmm2, 8", ["feq", "funord"]),
    ("vcmpsd xmm0, xmm1, xmm2, 28", ["fseq", "fsunord"]),
    ("cmpps xmm0, xmm1, 6", ["fle"] * 4),
    ("vcmppd ymm0, ymm1, [rdi], 25", ["fqle"] * 4),
])
def test_comparisons_by_their_immediate(source: str, operators: list[str]) -> None:
    assert raised(source) == operators


@pytest.mark.parametrize(("source", "operators"), [
    ("cvttps2dq xmm0, xmm1", ["f32toi32 3"] * 4),
    ("cvtps2dq xmm0, xmm1", ["f32toi32 4"] * 4),
    ("vcvtdq2ps ymm0, ymm1", ["i32tof32"] * 8),
    ("cvttpd2dq xmm0, xmm1", ["f64toi32 3"] * 2),
    ("cvtpd2dq xmm0, xmm1", ["f64toi32 4"] * 2),
    ("cvtss2si rax, xmm1", ["f32toi64 4"]),
    ("cvtps2pd xmm0, xmm1", ["f32to64"] * 2),
    ("roundpd xmm0, xmm1, 1", ["fround 1"] * 2),
    ("roundpd xmm0, xmm1, 9", ["fround 9"] * 2),
    ("vroundss xmm0, xmm1, xmm2, 12", ["fround 12"]),
    ("ucomiss xmm0, xmm1", ["fqcompare"]),
    ("comiss xmm0, [rdi]", ["fcompare"]),
    ("addsubps xmm0, xmm1", ["fadd", "fadd", "fsub", "fsub"]),
    ("addsubpd xmm0, xmm1", ["fadd", "fsub"]),
    ("vfnmadd231sd xmm0, xmm1, xmm2", ["fnma"]),
    ("vfnmsub231sd xmm0, xmm1, xmm2; vfnmsub231sd xmm0, xmm1, xmm2", ["fnms", "fnms"]),
    ("vfmaddsub231pd xmm0, xmm1, xmm2", ["fms", "fma"]),
    ("vfmadd213sd xmm1, xmm2, xmm3; vfnmsub213sd xmm1, xmm2, xmm3", ["fma", "fnms"]),
])
def test_each_instruction_raises_the_flags_of_one_operation(source: str, operators: list[str]) -> None:
    assert sorted(raised(source)) == sorted(operators)


def test_a_fused_operation_that_another_negates_stays() -> None:
    """The first result is overwritten; its flags are not those of the second where the rounding is directed."""
    source = "vmovapd xmm3, xmm0; vfmadd231sd xmm0, xmm1, xmm2; vfnmsub231sd xmm3, xmm1, xmm2; vmovapd xmm0, xmm3"
    assert raised(source) == ["fma", "fnms"]


@pytest.mark.parametrize("after", ["add rax, rbx", "comiss xmm2, xmm3", "mov rax, [rdi]; ucomisd xmm2, xmm3"])
def test_a_comparison_whose_result_is_overwritten_raises_its_flags(after: str) -> None:
    assert raised(f"comisd xmm0, xmm1; {after}")[0] == "fcompare"
    assert raised(f"vucomiss xmm0, [rdi]; {after}")[0] == "fqcompare"


def test_vex_still_drops_a_comparison_whose_flags_are_overwritten() -> None:
    """Else comparisons need no VEX block of their own."""
    machine_code = assemble(".intel_syntax noprefix\ncomisd xmm0, xmm1; add rax, rbx")
    lifted = pyvex.lift(machine_code, 0x1000, pyvex.ARCH_AMD64, opt_level=1, cross_insn_opt=False)
    assert "Add64" in str(lifted)
    assert "CmpF64" not in str(lifted)


def test_packed_single_precision_becomes_four_scalar_operations() -> None:
    assert str(lift_block(assemble("mulps 16(%rsi), %xmm0"), 0x1000)) == """\
block 0x1000 4
  0x1000
    t0:64 = rsi
    t1:64 = add t0, 0x10:64
    t2:64 = load [t1]
    t3:64 = add t0, 0x18:64
    t4:64 = load [t3]
    t5:64 = xmm0.0
    t6:64 = xmm0.1
    t7:32 = trunc t5
    t8:32 = high t5
    t9:32 = trunc t6
    t10:32 = high t6
    t11:32 = trunc t2
    t12:32 = high t2
    t13:32 = trunc t4
    t14:32 = high t4
    t15:32 = fmul t7, t11
    t16:32 = fmul t8, t12
    t17:32 = fmul t9, t13
    t18:32 = fmul t10, t14
    t19:64 = concat t16, t15
    t20:64 = concat t18, t17
    xmm0.0 = t19
    xmm0.1 = t20
    fallthrough 0x1004"""


@pytest.mark.parametrize(("source", "name", "reason"), [
    ("nop; fld1", "fld1 at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("movd %mm0, %eax", "movd at 0x1000", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; lock addl $1, (%rax)", "lock add at 0x1001", Reason.ATOMIC),
    ("nop; xchg %eax, (%rbx)", "xchg at 0x1001", Reason.ATOMIC),
    ("nop; nop; vaddpd %zmm1, %zmm2, %zmm3", "vaddpd at 0x1002", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; vmovupd (%rax), %xmm17", "vmovupd at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; vgatherdpd %ymm1, (%rax,%xmm2), %ymm3", "vgatherdpd at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; rep stosq", "rep stosq at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; syscall", "syscall at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; cpuid", "cpuid at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; ldmxcsr (%rax)", "ldmxcsr at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; bt %rcx, %rax", "bt at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; dppd $0x31, %xmm1, %xmm0", "dppd at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; vcmpfalsepd %ymm1, %ymm2, %ymm3", "vcmpfalsepd at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; vcmptrue_ussd %xmm1, %xmm2, %xmm3", "vcmptrue_ussd at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; bsf %rcx, %rax", "bsf at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; rsqrtps %xmm1, %xmm0", "rsqrtps at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("nop; ud2", "ud2 at 0x1001", Reason.UNSUPPORTED_INSTRUCTION),
    ("shl $3, %eax; setp %cl", "condition p after shl of 32 bits at 0x1003", Reason.UNSUPPORTED_INSTRUCTION),
])
def test_what_is_outside_is_rejected_by_its_own_address(source: str, name: str, reason: Reason) -> None:
    with pytest.raises(Rejected) as caught:
        lift_block(assemble(source), 0x1000)
    assert (caught.value.reason, caught.value.detail) == (reason, name)


def test_a_branch_before_the_end_is_rejected() -> None:
    with pytest.raises(Rejected):
        lift_block(assemble("jmp .+4; nop; nop; nop"), 0x1000)


@pytest.mark.parametrize(("source", "jump"), [
    ("nop", Jump(0x1000, 0x1001, "fallthrough")),
    ("jmp .+64", Jump(0x1000, 0x1040, "boring")),
    ("call .+64", Jump(0x1000, 0x1040, "call")),
])
def test_direct_jump_kinds(source: str, jump: Jump) -> None:
    assert lift_block(assemble(source), 0x1000).operations[-1] == jump


@pytest.mark.parametrize(("source", "kind"), [("ret", "ret"), ("jmp *%rax", "indirect"), ("call *8(%rax)", "call")])
def test_indirect_jump_kinds(source: str, kind: str) -> None:
    jump = lift_block(assemble(source), 0x1000).operations[-1]
    assert isinstance(jump, Jump)
    assert jump.kind == kind
    assert not isinstance(jump.target, int)


def test_aligned_access_becomes_a_check_and_no_exit() -> None:
    operations = lift_block(assemble("vmovapd (%rdi), %ymm0; movaps %xmm1, (%rdi)"), 0x1000).operations
    assert [o.size for o in operations if isinstance(o, AlignmentCheck)] == [32, 16]
    assert not [o for o in operations if isinstance(o, Exit)]
    assert [o.width for o in operations if isinstance(o, (Load, Store))] == [64] * 6


def test_flags_are_resolved_across_the_pieces_vex_takes() -> None:
    """More instructions than are given to VEX at a time, the comparison in the first piece."""
    block = lift_block(assemble("cmp %rbx, %rax; " + "lea 1(%rcx), %rcx; " * 60 + "jl .+9"), 0x1000)
    comparisons = [o for o in block.operations if isinstance(o, Compute) and o.width == 1]
    assert [o.operator for o in comparisons] in (["slt"], ["sle"])
    assert sum(isinstance(o, Jump) for o in block.operations) == 1
    (total,) = [o for o in block.operations if isinstance(o, Compute) and o.width == 64]
    assert total.operands[1] == Literal(60, 64)


@pytest.mark.parametrize("subtraction", ["sub %ecx, %eax", "sub $3, %eax", "add %ecx, %eax"])
def test_the_sign_of_a_difference_is_a_comparison(subtraction: str) -> None:
    """VEX shifts a sum of widened operands."""
    block = lift_block(assemble(f"{subtraction}; cmovs %edx, %eax"), 0x1000)
    operators = [o.operator for o in block.operations if isinstance(o, Compute)]
    assert "slt" in operators
    assert "shr" not in operators


def test_flags_from_before_the_block_stay_a_condition() -> None:
    block = lift_block(assemble("jle .+9"), 0x1000)
    (condition,) = [o for o in block.operations if isinstance(o, Compute) and o.operator == "condition"]
    assert [o.location for o in block.operations if isinstance(o, Get)] == ["cc_op", "cc_dep1", "cc_dep2", "cc_ndep"]
    assert condition.operands[0] in (Literal(14, 64), Literal(15, 64))


def test_puts_are_whole_locations_and_not_overwritten_before_an_exit() -> None:
    block = lift_block(assemble("mov %cl, %ah; mov %dx, %ax; mov $1, %ebx; mov $2, %ebx"), 0x1000)
    assert [o.location for o in block.operations if isinstance(o, Put)] == ["rax", "rbx"]


def test_registers_are_up_to_date_at_every_exit() -> None:
    block = lift_block(assemble("mov $1, %ebx; test %rax, %rax; je .+9"), 0x1000)
    kinds = [type(o) for o in block.operations if isinstance(o, (Exit, Put, Jump))]
    assert kinds[-2:] == [Exit, Jump]
    assert ("rbx", Literal(1, 64)) in [(o.location, o.value) for o in block.operations if isinstance(o, Put)]


def test_a_quiet_comparison_beside_another_one_stays_quiet() -> None:
    block = lift_block(assemble("ucomisd %xmm1, %xmm0; seta %al; comisd %xmm1, %xmm0; seta %bl"), 0x1000)
    operators = [o.operator for o in block.operations if isinstance(o, Compute)]
    assert (operators.count("fqcompare"), operators.count("fcompare")) == (1, 1)


def test_rounding_from_mxcsr_is_kept_where_it_is_an_operand_only() -> None:
    def operators(source: str) -> dict[str, int]:
        block = lift_block(assemble(source), 0x1000)
        return {o.operator: len(o.operands) for o in block.operations if isinstance(o, Compute)}

    assert operators("cvtsd2ss %xmm1, %xmm0")["f64to32"] == 1
    assert operators("cvtsi2sd %rax, %xmm0")["i64tof64"] == 1
    assert operators("cvtsi2ss %rax, %xmm0")["i64tof32"] == 1
    assert operators("cvttss2si %xmm1, %eax")["f32toi32"] == 2
    assert "f32to64" not in operators("cvttss2si (%rsi), %rax")
    assert operators("cvtsd2si %xmm1, %eax")["f64toi32"] == 2
    assert operators("roundsd $1, %xmm1, %xmm0")["fround"] == 2
