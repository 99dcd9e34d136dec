"""Job control under a real shell on a real terminal, and signals sent to memopt alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.tools import need
from tests.support.waiting import PATIENCE

LAUNCHER = str(Path(__file__).resolve().parents[1] / "support" / "launcher.py")
MEMOPT = [sys.executable, LAUNCHER]
RUN = " ".join(MEMOPT)

# Reports every signal it gets on its standard output and ends by TERM.
WITNESS = """
import os, signal, sys, time
def got(number, frame):
    os.write(1, b"got %s\\n" % signal.Signals(number).name.encode())
    if number == signal.SIGTERM: os._exit(41)
for name in sys.argv[1:]: signal.signal(getattr(signal, name), got)
os.write(1, b"ready %d\\n" % os.getpid())
while True: time.sleep(0.05)
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(tmp_path) as shell:
        shell.expect("prompt> ")
        yield shell


@pytest.fixture
def witness(tmp_path: Path) -> str:
    (tmp_path / "witness.py").write_text(WITNESS)
    return f"{sys.executable} {tmp_path / 'witness.py'}"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def await_state(pid: int, letters: str) -> None:
    end = time.monotonic() + 60
    while state(pid) not in letters:
        assert time.monotonic() < end, f"process {pid} is {state(pid)}, not one of {letters}"
        time.sleep(0.01)


def start_witness(terminal: Terminal, witness: str, names: str, suffix: str = "") -> tuple[int, int]:
    """memopt's and the program's process ids."""
    terminal.command(f"{RUN} {witness} {names} {suffix}")
    program = int(terminal.expect(r"ready (\d+)").group(1))
    memopt = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
    return memopt, program


def test_exit_code_on_a_terminal(terminal: Terminal) -> None:
    terminal.command(f"{RUN} sh -c 'exit 37'; echo code=$?")
    terminal.expect(r"\ncode=37\n")


def test_ctrl_c_ends_both_by_the_signal(terminal: Terminal, witness: str) -> None:
    memopt, program = start_witness(terminal, witness, "SIGUSR1")
    terminal.type("\x03")
    terminal.expect("prompt> ")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=130\n")
    assert not Path(f"/proc/{program}").exists()
    assert not Path(f"/proc/{memopt}").exists()


def test_ctrl_c_reaches_a_handler_once(terminal: Terminal, witness: str) -> None:
    _, program = start_witness(terminal, witness, "SIGINT SIGTERM")
    terminal.type("\x03")
    terminal.expect("got SIGINT")
    os.kill(program, signal.SIGTERM)
    terminal.expect("got SIGTERM")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=41\n")
    assert terminal.output.count("got SIGINT") == 1


def test_ctrl_backslash(terminal: Terminal, witness: str) -> None:
    terminal.command("ulimit -c 0")
    start_witness(terminal, witness, "SIGUSR1")
    terminal.type("\x1c")
    terminal.expect("Quit")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=131\n")


@pytest.mark.check
def test_ctrl_z_and_fg(terminal: Terminal, witness: str) -> None:
    memopt, program = start_witness(terminal, witness, "SIGCONT SIGTERM")
    for _ in range(3):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect("prompt> ")
        await_state(program, "T")
        await_state(memopt, "T")
        terminal.command("jobs")
        terminal.expect("Stopped")
        terminal.expect("prompt> ")
        terminal.command("fg")
        terminal.expect("got SIGCONT")
        await_state(memopt, "SR")
    assert terminal.output.count("got SIGCONT") == 3
    os.kill(program, signal.SIGTERM)
    terminal.expect("got SIGTERM")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=41\n")


def test_ctrl_z_bg_and_fg_again(terminal: Terminal, witness: str) -> None:
    memopt, program = start_witness(terminal, witness, "SIGTERM")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect("prompt> ")
    terminal.command("bg")
    terminal.expect("prompt> ")
    await_state(program, "SR")
    await_state(memopt, "SR")
    terminal.command("jobs")
    terminal.expect("Running")
    terminal.expect("prompt> ")
    terminal.command("fg")
    terminal.await_foreground(program)
    terminal.type("\x03")
    terminal.expect("prompt> ")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=130\n")


def test_ctrl_z_that_the_program_handles_does_not_stop_memopt(terminal: Terminal, witness: str) -> None:
    memopt, program = start_witness(terminal, witness, "SIGTSTP SIGTERM")
    terminal.type("\x1a")
    terminal.expect("got SIGTSTP")
    assert state(memopt) in "SR"
    os.kill(program, signal.SIGTERM)
    terminal.expect("got SIGTERM")


def test_program_that_stops_itself_gives_the_prompt_back(terminal: Terminal) -> None:
    terminal.command(f"{RUN} sh -c 'kill -STOP $$; echo went on'")
    terminal.expect("Stopped")
    terminal.command("fg")
    terminal.expect(r"\nwent on\n")


def test_reading_in_the_background_stops_the_job(terminal: Terminal) -> None:
    terminal.command(f"{RUN} head -n 1 &")
    terminal.expect("prompt> ")
    terminal.command("wait %1")
    terminal.expect("Stopped")
    terminal.expect("prompt> ")
    terminal.command("jobs -l")
    terminal.expect(r"tty input\)")
    terminal.expect("prompt> ")
    terminal.command("fg")
    terminal.expect("head -n 1\n")
    terminal.command("a line")
    terminal.expect("a line\na line\n")
    terminal.command("echo code=$?")
    terminal.expect(r"\ncode=0\n")


def test_background_job_of_an_interactive_shell(terminal: Terminal, witness: str) -> None:
    memopt, _ = start_witness(terminal, witness, "SIGTERM", "&")
    terminal.command("echo free")
    terminal.expect(r"\nfree\n")
    os.kill(memopt, signal.SIGTERM)
    terminal.expect("got SIGTERM")
    terminal.command("wait $!; echo code=$?")
    terminal.expect(r"\ncode=41\n")


def test_closed_terminal_hangs_the_program_up(tmp_path: Path, witness: str) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.expect("prompt> ")
        memopt, program = start_witness(terminal, witness, "SIGUSR1")
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() and state(pid) != "Z" for pid in (memopt, program)):
        assert time.monotonic() < end
        time.sleep(0.01)


class Running:
    """A witness under memopt, without a terminal."""

    def __init__(self, tmp_path: Path, *names: str, **options: object) -> None:
        script = tmp_path / "witness.py"
        script.write_text(WITNESS)
        self.memopt = subprocess.Popen([*MEMOPT, sys.executable, str(script), *names], stdout=subprocess.PIPE,
                                       text=True, **options)  # type: ignore[call-overload]
        self.program = int(self.line().split()[1])

    def line(self) -> str:
        return str(self.memopt.stdout.readline())

    def end(self) -> int:
        os.kill(self.program, signal.SIGKILL)
        return int(self.memopt.wait())


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGALRM",
                                  "SIGTSTP", "SIGSEGV", "SIGRTMIN"])
def test_signal_to_memopt_alone_is_passed_on(tmp_path: Path, name: str) -> None:
    running = Running(tmp_path, name)
    running.memopt.send_signal(getattr(signal, name))
    assert running.line() == f"got {name}\n"
    assert running.end() == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, signal.SIGRTMAX])
def test_dies_by_the_signal_of_the_program(tmp_path: Path, number: signal.Signals) -> None:
    running = Running(tmp_path)
    os.kill(running.program, number)
    assert running.memopt.wait() == -number


def test_stop_passed_on_and_continued_through_memopt(tmp_path: Path) -> None:
    """An orphaned process group ignores SIGTSTP, so memopt is in one of its own under a parent in this session."""
    running = Running(tmp_path, process_group=0)
    running.memopt.send_signal(signal.SIGTSTP)
    await_state(running.program, "T")
    await_state(running.memopt.pid, "T")
    running.memopt.send_signal(signal.SIGCONT)
    await_state(running.program, "SR")
    await_state(running.memopt.pid, "SR")
    assert running.end() == -signal.SIGKILL


def test_stop_and_continue_of_the_program_alone_does_not_strand_memopt(tmp_path: Path) -> None:
    running = Running(tmp_path, "SIGUSR1")
    os.kill(running.program, signal.SIGSTOP)
    await_state(running.program, "T")
    os.kill(running.program, signal.SIGCONT)
    running.memopt.send_signal(signal.SIGUSR1)
    assert running.line() == "got SIGUSR1\n"
    assert running.end() == -signal.SIGKILL


def test_word_of_the_program_to_its_parent_does_not_come_back(tmp_path: Path) -> None:
    script = """
import os, signal, time
signal.signal(signal.SIGUSR2, lambda *_: os._exit(9))
os.kill(os.getppid(), signal.SIGUSR2)
time.sleep(0.3)
"""
    assert subprocess.run([*MEMOPT, sys.executable, "-c", script]).returncode == 0


def test_queued_value_is_kept(tmp_path: Path) -> None:
    need("/bin/kill")
    source, program = tmp_path / "queue.c", tmp_path / "queue"
    source.write_text("""
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            sigset_t set; siginfo_t info;
            sigemptyset(&set); sigaddset(&set, SIGUSR1); sigprocmask(SIG_BLOCK, &set, 0);
            puts("ready 0"); fflush(stdout);
            sigwaitinfo(&set, &info);
            printf("%d %d\\n", info.si_value.sival_int, info.si_code == SI_QUEUE);
            return 0;
        }
    """)
    subprocess.run(["gcc", "-o", program, source], check=True)
    memopt = subprocess.Popen([*MEMOPT, str(program)], stdout=subprocess.PIPE, text=True)
    assert memopt.stdout is not None
    assert memopt.stdout.readline() == "ready 0\n"
    subprocess.run(["/bin/kill", "-USR1", "-q", "1234", str(memopt.pid)], check=True)
    assert memopt.stdout.readline() == "1234 1\n"
    assert memopt.wait() == 0


def test_memopt_killed_leaves_the_program_running(tmp_path: Path) -> None:
    running = Running(tmp_path, "SIGUSR1", "SIGTERM")
    running.memopt.kill()
    running.memopt.wait()
    os.kill(running.program, signal.SIGUSR1)
    assert running.line() == "got SIGUSR1\n"
    os.kill(running.program, signal.SIGTERM)
    assert running.line() == "got SIGTERM\n"


def test_ignored_child_signal_loses_no_exit_code() -> None:
    line = ["trap '' CHLD; exec " + RUN + " sh -c 'exit 23'"]
    assert subprocess.run(["bash", "-c", *line]).returncode == 23


TRACED = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from runtime.launch.identify import identify
from runtime.launch.jobcontrol import Stopped, TraceStop
from runtime.launch.launch import launch
from runtime.target import ptrace
from runtime.target.tracee import attach
target = launch(identify("sleep", "/bin"), ["sleep", "60"])
supervisor, tracee = target.supervisor, attach(target.pid)
supervisor.traced = True
{body}
os.kill(target.pid, signal.SIGKILL)
while supervisor.outcome is None: supervisor.poll(None)
print("done")
"""


@pytest.mark.parametrize("body", [
    # A stop of the tracer's is handed over as waitpid gave it.
    """
ptrace.request(ptrace.INTERRUPT, target.pid)
[event] = supervisor.poll(None)
assert ptrace.decode(event.status).kind is ptrace.StopKind.INTERRUPT
ptrace.request(ptrace.DETACH, target.pid)
""",
    # So is a stop before a signal is delivered, though it looks like one of job control.
    """
os.kill(target.pid, signal.SIGUSR1)
[event] = supervisor.poll(None)
assert ptrace.decode(event.status) == ptrace.Stop(ptrace.StopKind.SIGNAL, signal.SIGUSR1), event
ptrace.request(ptrace.DETACH, target.pid)
""",
    # Stopped by job control while traced: reported as such once the tracer is gone.
    """
os.kill(target.pid, signal.SIGSTOP)
[event] = supervisor.poll(None)
ptrace.request(ptrace.CONT, target.pid, 0, signal.SIGSTOP)
[event] = supervisor.poll(None)
assert ptrace.decode(event.status) == ptrace.Stop(ptrace.StopKind.GROUP, signal.SIGSTOP), event
ptrace.request(ptrace.DETACH, target.pid)
supervisor.traced = False
assert supervisor.poll(None) == [Stopped(signal.SIGSTOP)]
assert supervisor.stopped
""",
])
def test_stops_of_a_tracer_belong_to_it(body: str) -> None:
    code = TRACED.format(root=str(Path(LAUNCHER).parents[2]), body=body)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                            start_new_session=True)
    assert (result.stdout, result.stderr) == ("done\n", "")


_STOPS = """
import os, signal
from runtime.launch.jobcontrol import SignalState, Supervisor
supervisor = Supervisor(os.getpid(), SignalState.hold())
os.kill(os.getpid(), signal.SIGTSTP)
supervisor.stop_likewise(signal.SIGTSTP)
"""


def test_a_stop_that_has_come_already_is_not_another_one() -> None:
    """The terminal's signal is pending when memopt stops itself: one continuation must do."""
    child = subprocess.Popen([sys.executable, "-c", _STOPS], process_group=0)
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    child.send_signal(signal.SIGCONT)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    stopped = os.WIFSTOPPED(status)
    if stopped:
        child.kill()
        child.wait()
    assert not stopped
    assert os.waitstatus_to_exitcode(status) == 0
