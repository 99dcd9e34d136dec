"""A program cannot tell that memopt started it: run natively and under the launcher, everything is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.launch import launch as launching
from runtime.launch.identify import CannotRun, Executable, identify
from runtime.launch.jobcontrol import Exited, Signaled
from tests.support.waiting import PATIENCE

LAUNCHER = str(Path(__file__).resolve().parents[1] / "support" / "launcher.py")
RUN = f"{sys.executable} {LAUNCHER} "

# Lines of /proc/self/status that say who the process is, or that Python's fork touches, and not how it was set up.
_PERSONAL = ("Name", "Tgid", "Pid", "PPid", "NS", "Vm", "Rss", "voluntary", "nonvoluntary", "SigQ", "Hugetlb",
             "Kthread")


def shell(line: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=PATIENCE, **options)  # type: ignore[call-overload, no-any-return]


def same(before: str, command: str, after: str = "", **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs ``before command after`` natively and under memopt and returns the latter after comparing the two."""
    native, ours = (shell(f"{before} {word}{command} {after}", **options) for word in ("", RUN))
    assert (ours.returncode, ours.stdout, ours.stderr) == (native.returncode, native.stdout, native.stderr)
    return ours


@pytest.mark.parametrize("code", [0, 1, 2, 37, 127, 128, 255])
def test_exit_code(code: int) -> None:
    assert same("exec", f"sh -c 'exit {code}'").returncode == code


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL, signal.SIGPIPE, signal.SIGXFSZ,
                                    signal.SIGRTMIN])
def test_death_by_signal(number: int, tmp_path: Path) -> None:
    assert same("ulimit -c 0; exec", f"sh -c 'kill -{int(number)} $$'", cwd=tmp_path).returncode == -number


def test_death_by_signal_makes_one_core_at_most(tmp_path: Path) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
        pytest.skip("cores go to a program here")
    shell(f"ulimit -c unlimited; {RUN} sh -c 'kill -ABRT $$'", cwd=tmp_path)
    assert len(list(tmp_path.iterdir())) <= 1
    for core in tmp_path.iterdir():
        assert b"launcher.py" not in core.read_bytes()[:65536]


@pytest.mark.parametrize("variables", ["", "A=1 B= LC_ALL=C", "LANG= LC_CTYPE=C PATH=/bin:/usr/bin",
                                       "PYTHONUTF8=0 Z=a=b", "LC_ALL=POSIX X=$'\\xff\\xfe' Y=$'two\\nlines'"])
def test_environment_is_the_same_bytes(variables: str) -> None:
    assert same(f"env -i {variables}", "/usr/bin/env -0").stdout.count(b"\0") == len(variables.split())


def test_environment_with_odd_entries() -> None:
    """Entries without ``=`` and doubles, which only execve itself can pass."""
    odd = [b"NOEQUALS", b"A=1", b"A=2", b"=x"]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        arguments = [sys.executable, LAUNCHER, "/bin/cat", "/proc/self/environ"]
        launching._Image(identify(sys.executable, None), arguments, odd).execve()
        os._exit(1)
    os.close(write)
    with open(read, "rb") as file:
        assert file.read() == b"".join(entry + b"\0" for entry in odd)
    os.waitpid(pid, 0)


def test_no_descriptor_is_added_or_lost() -> None:
    names = same("exec 7</dev/null 9>/dev/null;", "ls /proc/self/fd").stdout.split()
    assert {b"7", b"9"} <= set(names)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "0<&- 1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors_stay_closed(closed: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f'for f in 0 1 2; do [ -e /proc/$$/fd/$f ] || echo $f >> {tmp_path}/closed; done; exit 5')
    assert same("", f"sh {script}", closed).returncode == 5
    assert (tmp_path / "closed").read_text().split() == [part[0] for part in closed.split()] * 2


@pytest.mark.parametrize("setup", [
    "", "trap '' INT", "trap '' HUP QUIT TERM USR1 CHLD", "nohup", "ulimit -n 200 -s 4096 -t 600", "taskset 1",
    "nice -n 5", "env --ignore-signal=ALRM --block-signal=USR2", "setpriv --no-new-privs", "cd /;", "umask 027;",
    "setarch -R", "chrt -b 0",
])
def test_the_process_is_set_up_the_same(setup: str, tmp_path: Path) -> None:
    separator = ";" if setup.startswith(("trap", "ulimit")) else ""
    if shell(f"{setup}{separator} true").returncode:
        pytest.skip(f"{setup} does not work here")
    personal = "|".join(_PERSONAL)
    files = "/proc/self/limits /proc/self/personality /proc/self/oom_score_adj /proc/self/timerslack_ns"
    script = f'grep -Ev "^({personal})" /proc/self/status; cat {files}; readlink /proc/self/cwd; nice; umask; ulimit -a'
    result = same(f"{setup}{separator}", f"bash -c '{script}'", cwd=tmp_path)
    assert b"SigIgn" in result.stdout


def ignored(status: str) -> int:
    """SigIgn of /proc/PID/status without signals 32 and 33: glibc's posix_spawn, which make uses, ignores those."""
    line = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return int(line.split()[1], 16) & ~(3 << 31)


def test_background_job_of_a_script() -> None:
    """Its SIGINT and SIGQUIT are ignored, and stay so."""
    result = same("", "grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status", "& wait $!")
    assert ignored(result.stdout.decode()) == 1 << (signal.SIGINT - 1) | 1 << (signal.SIGQUIT - 1)


def test_standard_input_and_output() -> None:
    data = b"".join(b"%d\n" % (i * 7919 % 100003) for i in range(50000))
    assert len(same("", "sort -n", input=data).stdout) == len(data)


def test_program_that_closes_a_pipe_early_is_seen_to_do_so(tmp_path: Path) -> None:
    """memopt must not hold the pipes open itself: the writer gets its SIGPIPE, the reader its end of file. The program
    lives on until its partner has seen that."""
    for closed, before, after, expected in (("<&-", "{ yes; echo $? >&2; touch seen; } |", "", b"141\nlate\n"),
                                            (">&-", "", "| { cat; echo end >&2; touch seen; }", b"end\nlate\n")):
        script = f"exec {closed}; until [ -e seen ]; do sleep 0.02; done; echo late >&2"
        assert same(f"rm -f seen; {before}", f"sh -c '{script}'", after, cwd=tmp_path).stderr == expected


def test_script_runs_as_its_interpreter_does(tmp_path: Path) -> None:
    script = tmp_path / "a-script"
    script.write_text("#!/bin/sh -u\necho $0 $# \"$1\"; exit 6\n")
    script.chmod(0o755)
    assert same("", f"{script} 'an argument' ''").returncode == 6
    assert same(f"PATH=$PATH:{tmp_path};", "a-script x").returncode == 6
    script.write_text("echo never\n")
    result = shell(f"{RUN} {script}")
    assert result.returncode == 126
    assert result.stdout == b""
    assert result.stderr.startswith(b"memopt: ")


def test_first_argument_is_kept() -> None:
    assert same("", "sh -c 'tr \"\\0\" \"\\n\" < /proc/$$/cmdline' \"\" $'\\xff' é").stdout.startswith(b"sh\n-c\n")


@pytest.mark.parametrize(("program", "code"), [("./no", 127), ("no-such-program", 127), ("/tmp", 126),
                                               ("/etc/passwd", 126)])
def test_what_cannot_run_is_one_line_and_the_exit_code_of_the_shell(program: str, code: int) -> None:
    assert shell(program).returncode == code
    result = shell(RUN + program)
    assert result.returncode == code
    assert result.stdout == b""
    assert result.stderr.startswith(b"memopt: ")
    assert result.stderr.count(b"\n") == 1


def test_failure_of_execve_itself_is_typed() -> None:
    result = shell(f"{RUN} true \"$(head -c 200000 /dev/zero | tr '\\0' x)\"")
    assert result.returncode == 126
    assert b"Argument list too long" in result.stderr


def test_memopt_killed_before_execve(tmp_path: Path) -> None:
    """Whatever happens to memopt between fork and execve, the program starts."""
    code = f"""
import os, sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from runtime.launch.identify import identify
from runtime.launch.launch import launch_prepared
launch_prepared(identify("sh", "/bin"), ["sh", "-c", "echo alive"], lambda pid: os.kill(os.getpid(), 9))
"""
    result = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=PATIENCE)
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == b"alive\n"


def test_launch_in_process() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    target, prepared = launching.launch_prepared(identify("sh", "/bin"), ["sh", "-c", "exit $((A + 3))"],
                                                 lambda pid: -pid, environment=[b"A=4"])
    assert prepared == -target.pid
    assert launching.supervised() is target.supervisor
    events = target.supervisor.poll(30)
    assert events == [Exited(7)]
    assert target.supervisor.outcome == Exited(7)
    assert target.supervisor.poll(30) == []
    target.supervisor.close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_poll_times_out_and_reports_a_signal() -> None:
    target = launching.launch(identify("sleep", "/bin"), ["sleep", "60"])
    assert target.supervisor.poll(0.01) == []
    os.kill(target.pid, signal.SIGKILL)
    assert target.supervisor.poll(None) == [Signaled(signal.SIGKILL)]
    target.supervisor.close()


def test_exit_seen_by_another_part() -> None:
    target = launching.launch(identify("false", "/bin"), ["false"])
    _, status = os.waitpid(target.pid, 0)
    target.supervisor.note_exit(status)
    assert target.supervisor.poll(None) == []
    assert target.supervisor.outcome == Exited(1)
    target.supervisor.close()


def test_refused_by_the_kernel_leaves_nothing_behind(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.listdir("/proc/self/fd"))
    text = tmp_path / "text"
    text.write_text("no program\n")
    text.chmod(0o755)
    with pytest.raises(CannotRun, match="Exec format error") as caught:
        launching.launch(Executable(str(text), str(text)), ["text"])
    assert caught.value.exit_code == 126
    assert launching.supervised() is None
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.listdir("/proc/self/fd"))) == before


def test_failing_preparation_does_not_stop_the_program() -> None:
    def fail(pid: int) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        launching.launch_prepared(identify("sh", "/bin"), ["sh", "-c", "exit 3"], fail)
    supervisor = launching.supervised()
    assert supervisor is not None
    assert supervisor.poll(30) == [Exited(3)]
    supervisor.close()


def test_replace_becomes_the_program() -> None:
    code = f"""
import os, sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from runtime.launch.identify import identify
from runtime.launch.launch import replace
os.write(1, b"%d\\n" % os.getpid())
replace(identify("sh", "/bin"), ["sh", "-c", "echo $$; grep -E '^Sig(Ign|Blk)' /proc/self/status; exit 5"])
"""
    result = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    first, second, *signals = result.stdout.splitlines()
    assert result.returncode == 5
    assert first == second
    assert ignored("\n".join(signals)) == 0
    assert any(line.split() == ["SigBlk:", "0000000000000000"] for line in signals)
