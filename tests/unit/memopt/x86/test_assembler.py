"""The assembler: placement, labels, patching, and what it refuses. Random forms are in tests/property."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import keystone
import pytest

from memopt.ir.reasons import VerifyError
from memopt.x86 import assembler
from memopt.x86.assembler import assemble, listing, padding
from memopt.x86.decoder import decode
from memopt.x86.instructions import (
    Align,
    Bytes,
    Code,
    Imm,
    Instruction,
    Item,
    Label,
    Mem,
    Reg,
    code,
    dword,
    instruction,
    jump,
)
from memopt.x86.verify import verify_run

BASE = 0x401000


def hexed(*items: Item) -> str:
    return assemble(items, BASE).code.hex()


@pytest.mark.parametrize(("item", "expected"), [
    (instruction("mov", "rax", 5), "48c7c005000000"),
    (instruction("mov", "rax", 2**63), "48b80000000000000080"),
    (instruction("lea", "r13", Mem("r12", "rbp", 8, -64)), "4d8d6cecc0"),
    (instruction("mov", "eax", Mem("rsp", size=4)), "8b0424"),
    (instruction("movsd", "xmm8", Mem("r13")), "f2450f104500"),
    (instruction("vmovupd", "zmm0", Mem("rdi", displacement=64, size=64)), "62f1fd48108740000000"),
    (instruction("vaddpd", "zmm1", "zmm2", Mem("rdi", displacement=8, broadcast=8), mask="k3", zeroing=True),
     "62f1eddb588f08000000"),
    (instruction("vmovupd", Mem("rdi", displacement=-128, size=64), "zmm31", mask="k1"), "6261fd4911bf80ffffff"),
    (instruction("xsave64", Mem("rbp", displacement=256)), "480faea500010000"),
    (jump("here", "rcxz"), "e3fe"),
])
def test_known_encodings(item: Instruction, expected: str) -> None:
    assert hexed(Label("here"), item) == expected


def test_jumps_and_labels() -> None:
    result = assemble((Label("a"), jump("b", "ne"), jump("a"), Label("b"), jump("a", "o")), BASE)
    assert result.code.hex() == "0f8505000000e9f5ffffff0f80efffffff"
    assert result.labels == {"a": BASE, "b": BASE + 11}


def test_jump_to_an_address() -> None:
    assert hexed(instruction("jmp", 0x400000)) == "e9" + (0x400000 - BASE - 5).to_bytes(4, "little", signed=True).hex()


def test_rip_operands_with_an_immediate_behind() -> None:
    target = 0x500000
    found = decode(assemble((instruction("mov", Mem("rip", displacement=target), -1),), BASE).code, BASE)[0]
    assert found.operands_text.startswith(f"qword ptr [rip + {target - found.end:#x}]")


def test_rip_operand_of_a_label_with_offset() -> None:
    result = assemble((instruction("vmovupd", "zmm3", Mem("rip", size=64, displacement=64, symbol="t")), jump("end"),
                       Align(64), Label("t"), Bytes(bytes(128)), Label("end")), BASE)
    assert result.labels["t"] % 64 == 0
    first = decode(result.code, BASE)[0]
    assert first.operands_text == f"zmm3, zmmword ptr [rip + {result.labels['t'] + 64 - first.end:#x}]"


def test_code_is_the_same_form_wherever_it_is_placed() -> None:
    items = (Label("top"), instruction("add", "rax", Mem("rbp", displacement=8)), jump("top"))
    assert assemble(items, 0).code == assemble(items, 2**46).code


@pytest.mark.parametrize("size", range(1, 40))
def test_padding_is_executable(size: int) -> None:
    decoded = decode(padding(size), 0)
    assert sum(i.size for i in decoded) == size
    assert {i.mnemonic for i in decoded} == {"nop"}


def test_alignment_counts_from_the_address_not_from_the_start() -> None:
    assert assemble((Align(32), Label("x")), 0x1010).labels["x"] == 0x1020


def test_listing_names_labels_and_tables() -> None:
    items: Code = (Label("top"), instruction("vmulpd", "zmm1", "zmm2", Mem("rax", displacement=64, broadcast=8),
                                             mask="k1", zeroing=True),
                   instruction("inc", Mem("rip", displacement=0x5000)), jump("top"), Bytes(bytes(20)), Align(16))
    assert listing(items).splitlines() == [
        "top:", "    vmulpd zmm1 {k1} {z}, zmm2, qword ptr [rax + 0x40]{1to8}", "    inc qword ptr [0x5000]",
        "    jmp top", "    .byte " + " ".join(["00"] * 16) + " ... (20 bytes)", "    .align 16"]


@pytest.mark.parametrize("items", [
    (jump("nowhere"),), (Label("x"), Label("x")), (instruction("lea", "rax", Mem("rip", symbol="nowhere")),),
    (instruction("mov", "rax", Mem("rax", "rsp")),), (instruction("mov", "rax", Mem("rax", "rcx", 3)),),
    (instruction("mov", "rax", Mem(None, displacement=64)),),
    (instruction("mov", "rax", Mem("rax", displacement=2**31)),),
    (instruction("mov", "rax", Mem("rip", "rax", 8, 0x1000)),),
    (instruction("mov", "rax", Mem("rip", displacement=2**40)),),
    (instruction("jmp", 2**40),), (instruction("jmp", "rax"),), (instruction("jxyz", 0x401000),),
    (Label("far"), Bytes(bytes(200)), jump("far", "rcxz")),
    (instruction("frobnicate", "rax"),), (instruction("add", "rax", 2**40),), (instruction("mov", "rax", "ecx"),),
    (instruction("vaddpd", "ymm17", "ymm1", "ymm2"),), (instruction("vpmullq", "zmm1", "zmm2", "zmm3"),),
    (instruction("vxorpd", "zmm1", "zmm2", "zmm3"),),
])
def test_refused(items: Code) -> None:
    with pytest.raises(VerifyError):
        assemble(items, BASE)


def test_numbers_mean_the_same_in_any_radix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keystone reads decimal numbers as hexadecimal ones in some processes."""
    texts: list[str] = []
    run = assembler._run_keystone
    monkeypatch.setattr(assembler, "_run_keystone", lambda lines: texts.extend(lines) or run(lines))
    assemble((instruction("add", "rax", 192), instruction("imul", "rcx", Mem("rbp", "rax", 8, 0x40), -16)), 0)
    assert texts == ["add rax, 0xc0", "imul rcx, qword ptr [rbp + rax*0x8 + 0x40], -0x10"]


def test_one_bad_instruction_among_many_is_named() -> None:
    good = tuple(instruction("add", "rax", n) for n in range(50))
    with pytest.raises(VerifyError, match="frobnicate rax"):
        assemble((*good, instruction("frobnicate", "rax"), *good), BASE)


@pytest.mark.parametrize(("meant", "encoded"), [
    (instruction("mov", "rax", "rbx"), "4889c8"),  # rcx
    (instruction("mov", "rax", "rbx"), "89d8"),  # eax, ebx
    (instruction("add", "rax", 5), "4883c006"),
    (instruction("add", "rax", -1), "4883c07f"),
    (instruction("mov", "rax", Mem("rdi", displacement=8)), "488b4710"),
    (instruction("mov", "rax", Mem("rdi", "rcx", 4)), "488b04cf"),  # scale 8
    (instruction("mov", "rax", Mem("rcx", "rdi", 4)), "488b048f"),  # base and index swapped
    (instruction("mov", "eax", Mem("rdi", size=4)), "488b07"),
    (instruction("vmovupd", "zmm0", Mem("rdi", displacement=64, size=64)), "62f1fd48104740"),  # Keystone's own: +0x1000
    (instruction("vaddpd", "zmm1", "zmm2", Mem("rdi", broadcast=8)), "62f1ed48580f"),  # no broadcast
    (instruction("vaddpd", "zmm1", "zmm2", "zmm3", mask="k1"), "62f1ed4a58cb"),  # k2
    (instruction("vaddpd", "zmm1", "zmm2", "zmm3", mask="k1"), "62f1edc958cb"),  # zeroing
    (instruction("vsubpd", "zmm1", "zmm2", "zmm3"), "62f1e5485cca"),  # sources swapped
    (instruction("cmppd", "xmm0", "xmm1", 2), "660fc2c101"),
    (instruction("nop"), "9090"),
    (instruction("jmp", BASE), "e9fcffffff"),
    (instruction("lea", "rax", Mem("rip", displacement=BASE)), "488d05faffffff"),
])
def test_a_wrong_encoding_is_caught(meant: Instruction, encoded: str) -> None:
    with pytest.raises(VerifyError):
        verify_run([meant], bytes.fromhex(encoded), BASE, {})


@pytest.mark.parametrize(("meant", "encoded"), [
    (instruction("mov", "rax", Mem("rcx", "rdi")), "488b040f"),  # the same sum
    (instruction("cmppd", "xmm0", "xmm1", 2), "660fc2c102"),  # printed as cmplepd
    (instruction("and", "rax", -256), "482500ffffff"),
    (instruction("xchg", "rax", Mem("rdi")), "488707"),
    (instruction("jmp", BASE), "e9fbffffff"),
    (instruction("cmovz", "rax", "rbx"), "480f44c3"),
])
def test_an_equal_meaning_in_other_words_is_accepted(meant: Instruction, encoded: str) -> None:
    verify_run([meant], bytes.fromhex(encoded), BASE, {})


@pytest.mark.parametrize(("text", "wrong"), [
    ("vmovupd zmm0, zmmword ptr [rdi + 64]", "62f1fd48104740"),
    ("vaddpd zmm1, zmm2, qword ptr [rdi + 8]{1to8}", "62f1ed58584f08"),
    ("nop dword ptr [rax + rax]", "0f182400"),
])
def test_keystone_still_has_the_faults_worked_round(text: str, wrong: str) -> None:
    """When this fails, Keystone was mended: look at the work-round in the assembler again."""
    encoding, _ = keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64).asm(text, 0, True)
    assert bytes(encoding).hex() == wrong


def test_keystone_still_rounds_512_bits_from_memory_only() -> None:
    """Else ``passes.vector.floating.rounded`` need not go through the frame."""
    memory = instruction("vrndscalepd", "zmm1", Mem("rbp", displacement=64, size=64), 9)
    assert assemble((memory,), 0).code == bytes.fromhex("62f3fd48098d4000000009")
    with pytest.raises(VerifyError, match="Keystone refuses"):
        assemble(code(instruction("vrndscalepd", "zmm1", "zmm0", 9)), 0)


def test_shorthand() -> None:
    assert instruction("add", "rax", 3) == Instruction("add", (Reg("rax"), Imm(3)))
    assert code(Label("a"), (instruction("nop"),), [jump("a")]) == (Label("a"), instruction("nop"), jump("a"))
    assert (dword("rax"), dword("r9")) == ("eax", "r9d")


@pytest.mark.parametrize("mnemonic", ["vcvtss2si", "vcvttss2si", "vcvtsd2si", "vcvttsd2si"])
@pytest.mark.parametrize("register", ["eax", "r9"])
@pytest.mark.parametrize("place", [Mem("rbp"), Mem("r13", displacement=0x10), Mem("rbp", displacement=0x200)])
def test_conversions_of_memory_need_no_avx512(mnemonic: str, register: str, place: Mem) -> None:
    read = replace(place, size=4 if "ss2si" in mnemonic else 8)
    assert not assemble((instruction(mnemonic, register, read),), 0).evex
    assert not assemble((instruction(mnemonic, register, "xmm3"),), 0).evex


def test_evex_encodings_are_told() -> None:
    assert assemble((instruction("nop"), instruction("vaddpd", "zmm1", "zmm2", "zmm3")), 0).evex
    assert not assemble((instruction("vaddpd", "ymm1", "ymm2", "ymm3"),), 0).evex


def test_importing_the_assembler_does_not_import_keystone() -> None:
    check = "import sys, memopt.x86.assembler; sys.exit('keystone' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
