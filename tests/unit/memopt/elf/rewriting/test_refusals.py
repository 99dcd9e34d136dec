"""Each file that must not be rewritten is refused by its own reason; one that looks much like it is not."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import PF_W, PF_X, PT_LOAD, ElfError, Image
from memopt.elf.rewriting.refusals import (
    NotRewritable,
    check_displaced,
    check_file,
    check_reach,
    check_scratch,
    has_shadow_stack,
    needed,
)
from memopt.elf.symbols import Symbols
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.rewritten import counted
from tests.support.tools import need


def reason(path: Path | str) -> Reason | None:
    """Why the file is refused, in one line; None if it is not."""
    refused = None
    with Image(str(path)) as image:
        try:
            check_file(image, str(path))
        except NotRewritable as error:
            refused = error
    assert "\n" not in str(refused)
    return refused.reason if refused else None


@pytest.fixture
def program(build: Build, tmp_path: Path) -> Path:
    """A copy of a plain program."""
    return Path(shutil.copy(build("gemm_ijk.c"), tmp_path / "program"))


def compiled(folder: Path, source: str, *flags: str) -> Path:
    out = folder / "made"
    subprocess.run(["gcc", "-xc", "-", "-o", out, *flags], input=source.encode(), check=True)
    return out


def test_a_plain_program_is_not_refused(program: Path) -> None:
    assert reason(program) is None


def test_set_uid(program: Path) -> None:
    program.chmod(0o4755)
    assert reason(program) is Reason.SET_UID
    program.chmod(0o2755)
    assert reason(program) is Reason.SET_UID


def test_file_capabilities(program: Path) -> None:
    need("setcap")
    if subprocess.run(["setcap", "cap_net_raw+ep", program], capture_output=True).returncode:
        pytest.skip("file capabilities cannot be set here")
    assert reason(program) is Reason.SET_UID


def test_what_follows_the_file_is_refused_unless_it_is_zero(program: Path) -> None:
    content = program.read_bytes()
    program.write_bytes(content + bytes(5000))
    assert reason(program) is None
    program.write_bytes(content + bytes(4096) + b"PK")
    assert reason(program) is Reason.PAYLOAD


@pytest.mark.parametrize("beside", ["program.hmac", ".program.hmac", "program.chk"])
def test_a_hash_beside_the_file(program: Path, beside: str) -> None:
    (program.parent / beside).touch()
    assert reason(program) is Reason.SIGNED


def test_a_signature_in_attributes(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"\3" if name == "security.ima" else b"")
    assert reason(program) is Reason.SIGNED


def test_verity(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flags_of(descriptor: int, request: int, flags: bytearray) -> None:
        flags[:4] = (0x00100000).to_bytes(4, "little")  # FS_VERITY_FL

    monkeypatch.setattr(fcntl, "ioctl", flags_of)
    assert reason(program) is Reason.SIGNED


def test_the_dynamic_loaders(program: Path) -> None:
    with Image(str(program)) as image:
        loader = next(s for s in image.segments if s.kind == 3)
        path = image.string(loader.offset, 256)
    assert reason(path) is Reason.DYNAMIC_LOADER
    musl = Path("/lib/ld-musl-x86_64.so.1")
    if musl.exists():
        assert reason(musl) is Reason.DYNAMIC_LOADER


def test_a_static_program_is_no_loader(build: Build) -> None:
    assert reason(build("gemm_ijk.c", "-static")) is None
    assert reason(build("gemm_ijk.c", "-static-pie")) is None


def test_a_rewritten_file_is_refused(program: Path) -> None:
    with Image(str(program)) as image:
        content = counted(image, image.entry)
    program.write_bytes(content)
    assert reason(program) is Reason.REWRITTEN


def test_no_section_headers(program: Path) -> None:
    content = bytearray(program.read_bytes())
    content[60:62] = bytes(2)
    program.write_bytes(content)
    assert reason(program) is Reason.NO_SECTIONS


def test_a_writable_and_executable_segment(program: Path) -> None:
    content = bytearray(program.read_bytes())
    image = Image.of(bytes(content))
    number = next(n for n, s in enumerate(image.segments) if s.kind == PT_LOAD and s.flags & PF_X)
    content[image.segments_at + 56 * number + 4] |= PF_W
    program.write_bytes(content)
    assert reason(program) is Reason.WRITABLE_CODE


def test_relocations_of_the_code(tmp_path: Path) -> None:
    source = "extern int other; int look(void) { return other; }"
    made = compiled(tmp_path, source, "-shared", "-fno-pic", "-mcmodel=large", "-Wl,-z,notext")
    assert reason(made) is Reason.TEXT_RELOCATIONS
    assert reason(compiled(tmp_path, source, "-shared", "-fPIC")) is None


@pytest.mark.parametrize(("source", "what"), [
    ('__attribute__((section(".go.buildinfo"))) int a = 1; int f(void) { return a; }', "Go"),
    ("int JNI_CreateJavaVM(void) { return 1; }", "Java"),
])
def test_runtimes_that_look_at_interrupted_code(tmp_path: Path, source: str, what: str) -> None:
    made = compiled(tmp_path, source, "-shared", "-fPIC")
    assert reason(made) is Reason.RUNTIME
    with Image(str(made)) as image, pytest.raises(NotRewritable, match=what):
        check_file(image, str(made))


def test_a_collector_would_scan_much_scratch(build: Build, tmp_path: Path) -> None:
    with Image(str(build("gemm_ijk.c"))) as plain:
        check_scratch(plain, 1 << 30)
    for source, flags in (("void GC_init(void) {} int main(void) { return 0; }", ()),
                          ("extern void GC_init(void); int f(void) { GC_init(); return 0; }", ("-shared", "-fPIC"))):
        with Image(str(compiled(tmp_path, source, *flags))) as image:
            check_scratch(image, 64 << 10)
            with pytest.raises(NotRewritable) as refused:
                check_scratch(image, (64 << 10) + 1)
            assert refused.value.reason is Reason.COLLECTOR


def test_reach() -> None:
    check_reach(0x7000_0000, 0x1000)
    for code, header in ((0x8000_0000, 0x1000), (0x1000, 0x8000_0000)):
        with pytest.raises(NotRewritable) as refused:
            check_reach(code, header)
        assert refused.value.reason is Reason.NO_REACH


def test_landing_pads_strictly_inside(tmp_path: Path) -> None:
    need("g++")
    out = tmp_path / "catching"
    source = "void g(); int f() { try { g(); return 1; } catch (...) { return 2; } }"
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-xc++", "-", "-o", out], input=source.encode(), check=True)
    with Image(str(out)) as image:
        from memopt.elf.landing import landing_pads

        start = next(f.start for f in Symbols(image).functions if f.name == "_Z1fv")
        pad = landing_pads(image, start)[0].start
        check_displaced(image, start, range(pad, pad + 5), calls=False)
        check_displaced(image, start, range(pad - 5, pad), calls=False)
        with pytest.raises(NotRewritable) as refused:
            check_displaced(image, start, range(pad - 1, pad + 4), calls=False)
        assert refused.value.reason is Reason.LANDING_PAD


@pytest.mark.parametrize(("flags", "has"), [(("-fcf-protection=full", "-Wl,-z,shstk"), True), (("-Wl,-z,ibt",), False),
                                            ((), False)])
def test_shadow_stacks_forbid_moved_calls(tmp_path: Path, flags: tuple[str, ...], has: bool) -> None:
    made = compiled(tmp_path, "int main(void) { return 0; }", *flags)
    with Image(str(made)) as image:
        if not flags and has_shadow_stack(image):
            pytest.skip("this compiler asks for shadow stacks")
        assert has_shadow_stack(image) is has
        check_displaced(image, image.entry, range(image.entry, image.entry + 5), calls=False)
        if has:
            with pytest.raises(NotRewritable) as refused:
                check_displaced(image, image.entry, range(image.entry, image.entry + 5), calls=True)
            assert refused.value.reason is Reason.SHADOW_STACK


def test_the_libraries_that_a_file_needs(build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        assert needed(image) == ("libc.so.6",)
    with Image(str(build("gemm_ijk.c", "-static"))) as image:
        assert needed(image) == ()


def test_sections_beyond_the_end_are_an_error(program: Path) -> None:
    content = bytearray(program.read_bytes())
    image = Image.of(bytes(content))
    struct.pack_into("<Q", content, image.sections_at + 64 + 32, 1 << 40)  # the size of the first section
    program.write_bytes(content)
    with Image(str(program)) as damaged, pytest.raises(ElfError, match="truncated"):
        check_file(damaged, str(program))
