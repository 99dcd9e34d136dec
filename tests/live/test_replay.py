"""Replays: the kept snapshots agree, a wrong version is found, and a snapshot can do nothing but compute."""

from __future__ import annotations

import dataclasses
import gc
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import passes.version.generate
from memopt.ir.isa import Isa
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from memopt.session.snapshotting.replaying import Asked, replay
from memopt.snapshots.file import read, write
from memopt.snapshots.form import PAGE, REGISTERS, MappedRange, Nest, Pages, Snapshot, SnapshotError, VectorState
from memopt.usage import parse
from runtime.replay.emulation import Emulation, NotEmulated
from runtime.replay.sandbox import sandbox
from runtime.trial.shadow import End, ShadowStopped
from tests.support.effort import some
from tests.support.snapshots import KEPT, Kept
from tests.support.wrong_generator import wrong

CODE, DATA = 0x400000, 0x500000
PRODUCT = next(k for k in KEPT if k.name == "product")


@pytest.fixture(autouse=True)
def _own_limits() -> Iterator[None]:
    """``memopt replay`` limits its process, which here is that of all tests."""
    memory, collections = resource.getrlimit(resource.RLIMIT_AS), gc.get_threshold()
    yield
    resource.setrlimit(resource.RLIMIT_AS, memory)
    gc.set_threshold(*collections)


def snapshot_of(code: str, registers: dict[str, int] | None = None, data: bytes = b"") -> Snapshot:
    """Code in hexadecimal at the header, and a page of data."""
    given = dict.fromkeys(REGISTERS, 0) | {"rsp": DATA + PAGE - 64, "rdi": DATA} | (registers or {})
    return Snapshot(
        Nest("f", "prog", CODE, 0, (CODE, CODE + PAGE), None, (), 2), given, VectorState(),
        (MappedRange(CODE, CODE + PAGE, "r-x", False, "prog"), MappedRange(DATA, DATA + PAGE, "rw-", False, "")),
        (Pages(CODE, bytes.fromhex(code).ljust(PAGE, b"\x90")), Pages(DATA, data.ljust(PAGE, b"\0"))))


def every_line(snapshot: Snapshot, isa: Isa) -> list[tuple[bool, str]]:
    return list(replay(snapshot, Asked(isa, seconds=20.0)))


@pytest.mark.parametrize("kept", some(KEPT, 3), ids=lambda k: k.name)
@pytest.mark.parametrize("isa", [Isa.SSE2, *some([Isa.AVX2, Isa.AVX512], 0)], ids=lambda i: i.value)
def test_a_kept_nest_is_computed_as_before(kept: Kept, isa: Isa) -> None:
    if isa not in usable_isas(detect()):
        pytest.skip(f"this machine has no {isa.value}")
    lines = every_line(read(str(kept.path)), isa)
    assert all(agreed for agreed, _ in lines), lines
    assert any("identical" in line and "emulator" not in line for _, line in lines)
    assert isa is not Isa.SSE2 or any("in the emulator: identical" in line for _, line in lines)


@pytest.mark.long
def test_the_emulator_keeps_another_nan() -> None:
    """A fault of Unicorn 2.1. Where this fails, it is mended: ``emulating`` may call any difference one."""
    lines = every_line(read(str(next(k for k in KEPT if k.name == "payloads").path)), Isa.SSE2)
    assert any("but this processor gives something else" in line for _, line in lines)


def test_a_wrong_version_is_found_on_both_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes.version.generate, "generate", wrong(passes.version.generate.generate))
    _, here, emulated = every_line(read(str(PRODUCT.path)), Isa.SSE2)
    assert not here[0]
    assert "different: at least" in here[1]
    assert not emulated[0]
    assert "in the emulator: different: 0x" in emulated[1]


@pytest.mark.parametrize("code", [
    pytest.param("b85a000000 0f05", id="chmod"),
    pytest.param("b80f000000 0f05", id="rt_sigreturn"),
    pytest.param("b801000000 0f05", id="write"),
    pytest.param("b80f000000 cd80", id="chmod of 32 bits"),
    pytest.param("b8e7000000 0f05", id="exit_group"),
])
def test_no_system_call_is_made(code: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    data = bytes(file) + b"\0"
    snapshot = snapshot_of(code, {"rbx": DATA, "rcx": 0o777, "rsi": 0o777, "rdx": 8}, data)
    with sandbox(snapshot) as shadow:
        with pytest.raises(ShadowStopped) as stopped:
            shadow.run_to(CODE + 64, 5.0)
        assert stopped.value.reason is End.SYSTEM_CALL
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_child_has_nothing_but_the_pages() -> None:
    with sandbox(snapshot_of("90", {"fs_base": DATA})) as shadow:
        held = Path(f"/proc/{shadow.pid}/fd")
        assert {p.readlink() for p in held.iterdir()} == {Path("/dev/null")}
        assert Path(f"/proc/{shadow.pid}/environ").read_bytes() == b""
        starts = {int(line.split("-")[0], 16) for line in Path(f"/proc/{shadow.pid}/maps").read_text().splitlines()}
        assert {CODE, DATA} < starts
        assert len({s for s in starts if s < 1 << 47}) == 3  # and its own page
        assert shadow.registers().rip == CODE
    assert not Path(f"/proc/{shadow.pid}").exists()


def test_endless_code_ends() -> None:
    with sandbox(snapshot_of("ebfe")) as shadow, pytest.raises(ShadowStopped) as stopped:
        shadow.run_to(CODE + 64, 0.2)
    assert stopped.value.reason is End.TIMEOUT


@pytest.mark.parametrize(("change", "why"), [
    pytest.param({"ranges": ()}, "in none of its mappings", id="no mappings"),
    pytest.param({"state": VectorState(mxcsr=0xFFFF), "registers": {"fs_base": 1 << 63}}, "cannot be set up",
                 id="a base that is no address"),
])
def test_a_state_that_cannot_be(change: dict[str, object], why: str) -> None:
    usual = snapshot_of("90")
    if isinstance(given := change.get("registers"), dict):
        change = change | {"registers": dict(usual.registers) | given}
    with pytest.raises(SnapshotError, match=why), sandbox(dataclasses.replace(usual, **change)):  # type: ignore[arg-type]
        pass


def test_vex_instructions_are_not_emulated() -> None:
    emulation = Emulation(snapshot_of("c5f358c2 ebfa"), 5.0)  # vaddsd xmm0, xmm1, xmm2; jmp
    with pytest.raises(NotEmulated, match="vaddsd at 0x400000 is not SSE2"):
        emulation.original(1)
    with pytest.raises(NotEmulated, match="too long"):
        Emulation(snapshot_of("90 ebfe"), 0.2).original(1)


def damaged(snapshot: Snapshot, drawn: random.Random) -> Snapshot:
    """``snapshot`` with a number, a page or a mapping changed."""
    kind = drawn.randrange(4)
    if kind == 0:
        name = drawn.choice(REGISTERS)
        return dataclasses.replace(snapshot, registers={**snapshot.registers, name: drawn.getrandbits(64)})
    if kind == 1:
        gone = drawn.randrange(len(snapshot.pages))
        return dataclasses.replace(snapshot, pages=snapshot.pages[:gone] + snapshot.pages[gone + 1:])
    if kind == 2:
        nest = dataclasses.replace(snapshot.nest, header=snapshot.nest.header + drawn.randrange(-64, 64))
        return dataclasses.replace(snapshot, nest=nest)
    pages = list(snapshot.pages)
    number = next((n for n, p in enumerate(pages) if p.start <= snapshot.nest.header < p.end), 0)
    content = bytearray(pages[number].content)
    at = snapshot.nest.header - pages[number].start + drawn.randrange(96)
    content[at % len(content)] ^= 1 << drawn.randrange(8)
    pages[number] = Pages(pages[number].start, bytes(content))
    return dataclasses.replace(snapshot, pages=tuple(pages))


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_snapshot_gives_lines(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_damaged(seed, tmp_path, capfd)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 30))
def test_further_damaged_snapshots_give_lines(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_damaged(seed, tmp_path, capfd)


def check_damaged(seed: int, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "damaged"
    write(str(path), damaged(read(str(PRODUCT.path)), random.Random(seed)))
    parse(["replay", "--isa", "sse2", "--seconds", "0.2", str(path)])
    out, err = capfd.readouterr()
    assert out or err.startswith(f"memopt: {path}: ")
    assert "Traceback" not in out + err
    assert "Error:" not in err  # nor the line for an exception that nobody expected
    assert err.count("\n") <= 1
