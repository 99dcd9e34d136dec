"""Which programs may change their machine code while they run: in doubt, they may."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.session.replacing.constant_text import may_change_its_text
from tests.support.tools import need

_WAIT = "int main(void) { puts(\"\"); fflush(stdout); getchar(); return 0; }\n"


@pytest.mark.parametrize(("text", "flags", "may"), [
    pytest.param("", (), False, id="none of the means"),
    pytest.param("#include <sys/mman.h>\nint f(void *p) { return mprotect(p, 1, 7); }\n", (), True, id="mprotect"),
    pytest.param("#include <sys/mman.h>\nint (*f)(void *, size_t, int) = mprotect;\n", (), True, id="a pointer to it"),
    pytest.param("#include <dlfcn.h>\nvoid *f(void) { return dlopen(\"x\", 1); }\n", (), True, id="dlopen"),
    pytest.param("void f(void) { __asm__(\"syscall\"); }\n", (), True, id="a system call of its own"),
    pytest.param("", ("-static",), True, id="static"),
    pytest.param("#include <math.h>\ndouble f(double x) { return exp(x); }\n", ("-lm",), False, id="the C library"),
])
def test_who_may_change_its_code(tmp_path: Path, text: str, flags: tuple[str, ...], may: bool) -> None:
    need("gcc")
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text(f"#include <stdio.h>\n{text}{_WAIT}")
    subprocess.run(["gcc", "-O1", source, "-o", program, *flags], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert may_change_its_text(process.pid) is may
        process.communicate(b"\n")


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert may_change_its_text(process.pid)
