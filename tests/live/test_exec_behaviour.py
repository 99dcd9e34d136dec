"""The command line from outside, on real programs: what the shell, the terminal and the program's partners see."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure.execution import Execution, memopt_command, run, run_under_memopt
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.effort import some
from tests.support.told import EXIT_CODE, Told, text_of
from tests.support.waiting import PATIENCE

MEMOPT = [*memopt_command(), "exec"]
SIZE = "1300"


def own(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("memopt: ")]


def foreign(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith("memopt: ")]


def shell(line: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=PATIENCE, **options)  # type: ignore[call-overload, no-any-return]


# -- standing between the shell and the program ---------------------------------------------------------------------


@pytest.mark.check
def test_bytes_go_through_a_pipe_unchanged() -> None:
    data = os.urandom(3_000_000)
    done = subprocess.run([*MEMOPT, "--", "cat"], input=data, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, data)


def test_reader_that_goes_away_ends_the_program() -> None:
    done = shell(f"{' '.join(MEMOPT)} -- yes | head -n 2; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == b"y\ny\n141\n"


@pytest.mark.parametrize("code", some([0, 1, 127, 255], 2))
def test_exit_code(code: int) -> None:
    assert run([*MEMOPT, "--", "sh", "-c", f"exit {code}"], 60).exit_code == code


@pytest.mark.parametrize("number", some([signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], 2))
def test_death_by_signal_while_new_code_runs(program: Path, tmp_path: Path, number: signal.Signals) -> None:
    with Told(program, tmp_path, command=["bash", "-c", 'ulimit -c 0; exec "$@"', "bash", *MEMOPT, "--"]) as told:
        told.await_replaced()
        os.kill(told.pid, number)
        assert told.memopt.wait(60) == -number
    assert "replaced" in told.stderr
    assert not Path(f"/tmp/perf-{told.pid}.map").exists()


@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], 1))
def test_signal_to_memopt_alone_ends_the_program(program: Path, tmp_path: Path, number: signal.Signals) -> None:
    with Told(program, tmp_path) as told:
        told.await_replaced()
        told.memopt.send_signal(number)
        assert told.memopt.wait(60) == -number
    assert not Path(f"/proc/{told.pid}").exists()


def test_stopped_and_continued_from_outside(program: Path, expected: str, tmp_path: Path) -> None:
    with Told(program, tmp_path) as told:
        for number in (signal.SIGSTOP, signal.SIGCONT) * 20:
            os.kill(told.pid, number)
        told.await_replaced()
        for number in (signal.SIGSTOP, signal.SIGCONT) * 20:
            os.kill(told.pid, number)
        assert told.finish() == (EXIT_CODE, expected)


_FACTS = ("SigBlk", "SigIgn", "SigCgt", "Cpus_allowed", "Mems_allowed", "Uid", "Gid", "Groups", "CapEff", "NoNewPrivs",
          "Seccomp", "CoreDumping", "Umask", "Threads", "TracerPid", "State")


def facts(pid: int) -> dict[str, str]:
    """What /proc says of how a process is set up."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {name: status[name] for name in _FACTS}
    found |= {name: Path(f"/proc/{pid}/{name}").read_text() for name in ("limits", "environ", "cmdline", "autogroup",
                                                                         "personality", "oom_score_adj")}
    found["descriptors"] = " ".join(sorted(os.listdir(f"/proc/{pid}/fd")))
    found["directory"] = str(Path(f"/proc/{pid}/cwd").resolve())
    found["nice"] = str(os.getpriority(os.PRIO_PROCESS, pid))
    return found


def test_process_is_set_up_as_natively_even_after_the_replacement(program: Path, expected: str, tmp_path: Path) -> None:
    line = """ulimit -n 77 -c 0 -s 8000; umask 027; exec 9</dev/null; trap "" USR2
              exec nice -n 3 taskset -c 0 env A=1 B= "$@" """
    setting = ["bash", "-c", line, "bash"]
    found = []
    for command in (setting, [*setting, *MEMOPT, "--"]):
        with Told(program, tmp_path, command=command) as told:
            if command is not setting:
                told.await_replaced()
            found.append(facts(told.pid))
            assert told.finish() == (EXIT_CODE, expected)
    assert found[0] == found[1]
    assert found[0]["descriptors"] == "0 1 2 9"


# -- errors -------------------------------------------------------------------------------------------------------


def one_line(command: list[str], code: int) -> str:
    done = run([*MEMOPT, "--", *command], 60)
    assert (done.exit_code, done.stdout) == (code, b"")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("memopt: ")
    return done.stderr


def test_what_cannot_run_gets_one_line_and_the_code_of_the_shell(build: Build, tmp_path: Path) -> None:
    image = build("gemm_ijk.c").read_bytes()
    made = {"empty": b"", "text": b"hello\n", "truncated": image[:5000], "header": image[:40],
            "foreign": image[:18] + b"\xb7" + image[19:], "object": image[:16] + b"\1" + image[17:]}
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
        assert name in one_line([str(tmp_path / name)], 126)
    (tmp_path / "plain").write_bytes(image)
    (tmp_path / "plain").chmod(0o644)
    assert "chmod" in one_line([str(tmp_path / "plain")], 126)
    assert "directory" in one_line([str(tmp_path)], 126)
    assert "AArch64" in one_line([str(tmp_path / "foreign")], 126)
    one_line([str(tmp_path / "missing")], 127)
    one_line(["no-such-program-anywhere"], 127)
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    assert "/no/such/interpreter" in one_line([str(tmp_path / "script")], 127)


@pytest.mark.parametrize("words", [["--fp", "wrong", "true"], ["--isa", "avx1024", "true"],
                                   ["--print-after", "x", "true"], ["--no-such", "true"], [],
                                   ["--json", "/no/such/folder/file", "true"], ["--report", "/", "true"]])
def test_wrong_usage_is_one_line_and_exit_code_2(words: list[str]) -> None:
    done = run([*MEMOPT, *words], 60)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("memopt: ")


# -- programs that are not one hot nest -----------------------------------------------------------------------------


def test_script_runs_as_its_interpreter_does(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{shutil.which('python3')} -B\n"
                      "import sys\nprint(sys.argv[1:], sys.flags.dont_write_bytecode)\nsys.exit(9)\n")
    script.chmod(0o755)
    native, ours = (run([*words, str(script), "a", "-b"], 60) for words in ([], [*MEMOPT, "--"]))
    assert ours.same_result(native)
    assert native.exit_code == 9
    assert foreign(ours.stderr) == foreign(native.stderr)


@pytest.mark.long
def test_children_run_natively(build: Build, tmp_path: Path) -> None:
    child = build("gemm_ijk.c")
    watch = f'{child} 1500 & child=$!; sleep 0.6; grep -c memfd:memopt /proc/$child/maps; wait $child'
    native = run(["bash", "-c", watch], PATIENCE)
    ours = run_under_memopt(["bash", "-c", watch], PATIENCE)
    assert ours.same_result(native)
    assert ours.stdout.startswith(b"0\n")
    assert not ours.replaced


@pytest.mark.check
def test_program_that_becomes_another_by_execve(build: Build) -> None:
    command = ["bash", "-c", f'exec "{build("gemm_ijk.c")}" {SIZE}']
    native, ours = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert ours.same_result(native)


def test_program_that_forks_and_waits_while_it_is_improved(tmp_path: Path, build: Build) -> None:
    """Neither waitpid(-1) nor SIGCHLD may show a child that the program did not make."""
    product = build("forking.c")
    native, ours = run([str(product), SIZE], PATIENCE), run_under_memopt([str(product), SIZE], PATIENCE)
    assert ours.same_result(native)
    assert ours.replaced, ours.stderr
    assert native.stdout.startswith(b"children 3 signals 3")


def test_nothing_hot_is_no_word_at_all() -> None:
    done = run([*MEMOPT, "--", "true"], 60)
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"", "")


# -- options --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def product(build: Build) -> tuple[str, str]:
    return str(build("gemm_ijk.c", "-g")), SIZE


@pytest.fixture(scope="module")
def native(product: tuple[str, str]) -> Execution:
    return run(product, PATIENCE)


@pytest.fixture(scope="module")
def ours(product: tuple[str, str]) -> Execution:
    return run_under_memopt(product, PATIENCE)


def test_standard_error_is_the_programs_apart_from_memopts_lines(ours: Execution, native: Execution) -> None:
    assert ours.same_result(native)
    assert ours.replaced, ours.stderr
    assert [re.sub("[0-9.]+", "", line) for line in foreign(ours.stderr)] == ["seconds "]
    lines = own(ours.stderr)
    assert "replaced" in lines[0]
    assert "gemm_ijk.c:" in lines[0]
    assert lines[-1].startswith("memopt: next: ")


def test_quiet(product: tuple[str, str]) -> None:
    ours = run_under_memopt(product, 90, ("--quiet",))
    assert ours.replaced, ours.stderr
    assert own(ours.stderr) == []


@pytest.mark.check
def test_dry_run_leaves_no_patch_behind(program: Path, expected: str, tmp_path: Path) -> None:
    with Told(program, tmp_path, "--dry-run", "--json", str(tmp_path / "json")) as told:
        text = text_of(told.pid)
        told.await_idle()
        assert text_of(told.pid) == text
        assert told.finish() == (EXIT_CODE, expected)
    loop = json.loads((tmp_path / "json").read_text())["loops"][0]
    assert (loop["outcome"], loop["reason"], loop["iterations_run"]) == ("kept", Reason.DRY_RUN.value, 0)
    assert loop["plan"]
    assert "would be replaced" in told.stderr


def test_report_goes_to_a_file(product: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "report"
    ours = run_under_memopt(product, 90, ("--report", str(path)))
    assert ours.replaced, ours.stderr
    assert own(ours.stderr) == []
    assert "replaced" in path.read_text()


def test_json_has_what_the_manual_says(product: tuple[str, str], ours: Execution) -> None:
    assert ours.report is not None
    assert ours.report["version"]
    assert ours.report["program"] == list(product)
    loop = ours.report["loops"][0]
    assert loop["outcome"] == "replaced"
    assert loop["reason"] is None
    assert loop["function"] == "dgemm"
    assert re.fullmatch(r".*gemm_ijk\.c:\d+", loop["source"])
    assert int(loop["address"], 16) > 0
    assert 0.3 < loop["share"] <= 1
    assert "packed" in loop["plan"]
    assert loop["seconds_per_iteration_before"] > loop["seconds_per_iteration_after"] > 0
    assert loop["runs"] == 1


def test_report_on_a_full_disk_is_one_line(product: tuple[str, str], native: Execution) -> None:
    ours = run([*MEMOPT, "--json", "/dev/full", "--quiet", "--", *product], PATIENCE)
    assert ours.same_result(native)
    assert len(own(ours.stderr)) == 1


def test_verbose_and_print_after(product: tuple[str, str]) -> None:
    names = ("lift", "tiling", "plan", "generate")
    ours = run_under_memopt(product, 90, ("--verbose", *(f"--print-after={name}" for name in names)))
    assert ours.replaced, ours.stderr
    for stage in ("find", "capture", "lift", "schedule", "generate", "validate", "install"):
        assert any(re.match(rf"memopt:   {stage}: [0-9.]+ (s|ms|us)$", line) for line in own(ours.stderr)), stage
    for name in names:
        assert f"memopt: after {name}:" in own(ours.stderr)


def test_without_shadow(product: tuple[str, str], native: Execution) -> None:
    ours = run_under_memopt(product, 90, ("--no-shadow",))
    assert ours.same_result(native)
    assert ours.replaced, ours.stderr
    assert ours.report is not None
    assert "validate" not in ours.report["stages"]


def test_program_of_this_python_is_left_as_it_is() -> None:
    command = [sys.executable, "-c", "print(sum(i * i for i in range(3_000_000)))"]
    native, ours = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert ours.same_result(native)
    assert not ours.replaced


# The command line of a machine whose kernel refuses perf events to this user.
_WITHOUT_PERF = """
import errno, sys
from runtime.sampling import perf_events
def refuse(*_): raise PermissionError(errno.EACCES, "Permission denied")
perf_events._event = refuse
from memopt.cli import main
sys.argv[0] = "memopt"
main()
"""


def test_without_perf_events_the_program_is_stopped_to_sample_it(program: Path, expected: str, tmp_path: Path) -> None:
    with Told(program, tmp_path, command=[sys.executable, "-c", _WITHOUT_PERF, "exec", "--"]) as told:
        told.await_replaced()
        assert told.finish() == (EXIT_CODE, expected)
    assert "perf_event_paranoid" in told.words[0]
    assert "replaced" in told.words[1]


def test_programs_with_nothing_to_gain_are_the_same(build: Build, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{i * 2654435761 % 1000003} line {i}\n" for i in range(400_000)))
    for command in ([str(build("busy_integer.c")), "1"], ["sort", str(lines)], ["gzip", "-c", str(lines)]):
        native, ours = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
        assert ours.same_result(native), command
        assert foreign(ours.stderr) == foreign(native.stderr)
        assert not ours.replaced


@pytest.mark.parametrize("closed", ["<&- 2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(product: tuple[str, str], native: Execution, tmp_path: Path, closed: str) -> None:
    report = tmp_path / "report"
    command = [*MEMOPT, "--json", str(report), "--", *product]
    ours = run(["bash", "-c", f'"$@" {closed}; echo code=$?', "bash", *command], PATIENCE)
    assert ours.stdout == (b"" if " >&-" in closed else native.stdout) + b"code=0\n"
    assert json.loads(report.read_text())["loops"][0]["outcome"] == "replaced"
