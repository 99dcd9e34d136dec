"""Names of the global offset table's slots."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.elf.relocations import exports, symbol_of_slot, variable

SOURCE = """
#include <string.h>
int main(int argc, char **argv) { memset(argv[0], argc, argc); memcpy(argv[0], argv[1], argc); return 0; }
"""


@pytest.mark.parametrize("flags", [("-no-pie",), ("-pie",), ("-fno-plt",), ("-Wl,-z,now",)])
def test_slots_are_named_as_readelf_names_them(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-fno-builtin", *flags, "-o", "a", "a.c"], cwd=tmp_path, check=True)
    listing = subprocess.run(["readelf", "-rW", "a"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    expected = {int(line.split()[0], 16): line.split()[4].split("@")[0] for line in listing.splitlines()
                if "_JUMP_SLO" in line or "_GLOB_DAT" in line}
    assert {"memcpy", "memset"} <= set(expected.values())
    with Image(str(tmp_path / "a")) as image:
        assert {slot: symbol_of_slot(image, slot) for slot in expected} == expected
        assert symbol_of_slot(image, min(expected) - 8) in ("", *expected.values())
        assert not exports(image, "memcpy")


def test_the_c_library_defines_its_functions() -> None:
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line)
    with Image(path) as library:
        assert exports(library, "memcpy")
        assert not exports(library, "memopt")
        assert variable(library, "__libc_single_threaded")
        assert variable(library, "memcpy") is None


def test_a_programs_own_copy_of_a_variable_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("#include <sys/single_threaded.h>\nint main(void) { return __libc_single_threaded; }")
    subprocess.run(["gcc", "-O1", "-no-pie", "-fno-pie", "-o", "a", "a.c"], cwd=tmp_path, check=True)
    listing = subprocess.run(["nm", "a"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    expected = next(int(line.split()[0], 16) for line in listing.splitlines() if "__libc_single_threaded" in line)
    with Image(str(tmp_path / "a")) as image:
        assert variable(image, "__libc_single_threaded") == expected
