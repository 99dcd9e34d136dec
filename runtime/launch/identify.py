"""Finds the program that a command names, as the shell does, and judges its file before the program is started.

Example: ``script`` is found as /usr/bin/script and begins with ``#!/bin/sh``. Then execve gets /usr/bin/script, and
/bin/sh is the ELF file that the kernel will map.

In: the program's name, the value of PATH. Out: ``Executable``: the path for execve, the ELF file, and a ``Note`` where
the program runs but memopt must leave it alone (32-bit, set-uid, not readable). Raises ``CannotRun`` with the exit code
that a shell would give.

Invariant: a file is refused only if the kernel would refuse it, or if it is truncated so that the program would crash.
Everything else runs. At most ``_TABLE_LIMIT`` bytes of a table and one page of a name are read from any file, so a
hostile file costs nothing and raises nothing but ``CannotRun``. This module is imported before the program starts and
so delays it: it imports nothing slow, and no dataclasses.

Sources: execve(2), POSIX shell "Exit Status for Commands", System V ABI chapters 4 and 5, linux/fs/binfmt_elf.c and
binfmt_script.c.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from memopt.ir.reasons import Reason

NOT_FOUND = 127
NOT_EXECUTABLE = 126

_DEFAULT_PATH = "/bin:/usr/bin"  # confstr(_CS_PATH), what execvp searches when PATH is not set
_SCRIPT_LINE = 256  # BINPRM_BUF_SIZE: the kernel looks no further for the end of the interpreter's name
_SCRIPT_DEPTH = 5  # interpreters that may themselves be scripts
_TABLE_LIMIT = 65536  # the kernel refuses larger program header tables
_PAGE = 4096
_NAME_LIMIT = 4096  # PATH_MAX

_CLASS_32, _CLASS_64 = 1, 2
_LITTLE, _BIG = 1, 2
_PT_LOAD, _PT_INTERP = 1, 3
_MACHINE_I386, _MACHINE_X86_64 = 3, 62
_MACHINES = {
    2: "SPARC", 3: "i386", 8: "MIPS", 20: "PowerPC", 21: "PowerPC64", 22: "S/390", 40: "ARM", 43: "SPARC64",
    50: "IA-64", 183: "AArch64", 243: "RISC-V", 258: "LoongArch",
}
_OBJECT_TYPES = {1: "an object file that is not linked yet", 4: "a core dump"}


class CannotRun(Exception):
    """The program cannot be started. ``exit_code``: what a shell returns then, 126 or 127. The text is one line for
    the user."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Note:
    """Why memopt leaves a program alone that runs. ``detail`` names the file."""

    __slots__ = ("detail", "reason")

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.detail}: {self.reason.explain}; it runs natively"


class Executable:
    """A program that can be started.

    ``path``: what execve gets. ``image``: the ELF file that the kernel will map: ``path`` itself, or the interpreter
    at the end of the ``#!`` chain. ``note``: why memopt must leave it alone, else None.
    """

    __slots__ = ("image", "note", "path")

    def __init__(self, path: str, image: str, note: Note | None = None) -> None:
        self.path, self.image, self.note = path, image, note


def identify(program: str, path_environment: str | None) -> Executable:
    """Find ``program`` as execvp does (a name with a slash is not searched for) and judge its file.

    ``path_environment``: the value of PATH, None if it is not set. Raises ``CannotRun``: 127 if there is no such file,
    126 if it cannot be executed.
    """
    path = search(program, path_environment)
    image, script = path, ""
    for _ in range(_SCRIPT_DEPTH + 1):
        descriptor = _open(image, script)
        if descriptor is None:
            return Executable(path, image, Note(Reason.PTRACE_FORBIDDEN, f"{image} may be run but not read"))
        try:
            head = os.pread(descriptor, _SCRIPT_LINE, 0)
            if not head.startswith(b"#!"):
                return Executable(path, image, _classify(descriptor, head, image))
        except OSError as error:
            raise CannotRun(NOT_EXECUTABLE, f"{image} cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)
        script, image = image, _interpreter(head, image)
    raise CannotRun(NOT_EXECUTABLE, f"{path}: its #! lines name scripts more than {_SCRIPT_DEPTH} deep; "
                                    f"let the last one name a program")


def search(program: str, path_environment: str | None) -> str:
    """The path of ``program``: the first file in the folders of PATH that may be executed, as in execvp.

    If none may be executed, the first one found; ``identify`` then refuses it with the reason. Raises ``CannotRun`` 127
    if there is none.
    """
    if "/" in program:
        return program
    denied = None
    folders = _DEFAULT_PATH if path_environment is None else path_environment
    for folder in folders.split(":") if program else ():
        candidate = f"{folder or '.'}/{program}"
        try:
            is_file = stat.S_ISREG(os.stat(candidate).st_mode)
        except (OSError, ValueError):
            continue
        if is_file and _executable(candidate):
            return candidate
        denied = denied or candidate
    if denied is not None:
        return denied  # _open says why it cannot be executed
    if program and os.path.isfile(program):
        raise CannotRun(NOT_FOUND, f"{program}: no such program in PATH; the one here is ./{program}")
    raise CannotRun(NOT_FOUND, f"{program or repr('')}: no such program in PATH; check the name, or give its path")


def exec_failure(executable: Executable, number: int) -> CannotRun:
    """The error for the user when execve failed with errno ``number`` on a file that ``identify`` had accepted."""
    code = NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE
    advice = {
        errno.E2BIG: "pass fewer or shorter arguments, or a smaller environment",
        errno.ETXTBSY: "another process has it open for writing: wait until that has closed it",
        errno.ENOENT: "the file, its interpreter or its loader is missing",
        errno.ENOEXEC: "the kernel does not run this format",
        errno.EACCES: "check the permissions of the file and its directories, and that its file system is not noexec",
    }.get(number, "run it without memopt: it fails in the same way")
    return CannotRun(code, f"{executable.path} cannot be executed: {os.strerror(number)}; {advice}")


def _executable(path: str) -> bool:
    return os.access(path, os.X_OK, effective_ids=True)


def _open(path: str, script: str) -> int | None:
    """A descriptor to read ``path`` from; None if it may be executed but not read.

    ``script``: the script whose ``#!`` line names ``path``, or "". Raises ``CannotRun``.
    """
    named = f"{path} (named by the #! line of {script})" if script else path
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise _no_file(path, script, named, error) from error
    if stat.S_ISDIR(mode):
        raise CannotRun(NOT_EXECUTABLE, f"{named} is a directory; name a program in it")
    if not stat.S_ISREG(mode):
        raise CannotRun(NOT_EXECUTABLE, f"{named} is not a regular file; name a program")
    if not _executable(path):
        advice = "its file system is mounted noexec" if mode & 0o111 else f"make it so: chmod +x {path}"
        if mode & 0o111 and os.geteuid() != 0:
            advice = "its owner, its mode or its file system (noexec) forbids it"
        raise CannotRun(NOT_EXECUTABLE, f"{named} is not executable; {advice}")
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return None
    except OSError as error:
        raise CannotRun(NOT_EXECUTABLE, f"{named} cannot be opened: {error.strerror}") from error


def _no_file(path: str, script: str, named: str, error: OSError | ValueError) -> CannotRun:
    if isinstance(error, ValueError):
        return CannotRun(NOT_FOUND, f"{named!r}: no file can have this name")
    if error.errno != errno.ENOENT:
        return CannotRun(NOT_EXECUTABLE, f"{named} cannot be reached: {error.strerror}; check the path")
    if script and path.endswith("\r"):
        return CannotRun(NOT_FOUND, f"{script}: its #! line ends in a carriage return; convert it: sed -i 's/\\r$//'")
    if script:
        return CannotRun(NOT_FOUND, f"{script}: its interpreter {path} does not exist; install it or fix the #! line")
    return CannotRun(NOT_FOUND, f"{path}: no such file; check the path")


def _interpreter(head: bytes, script: str) -> str:
    """The interpreter in a ``#!`` line, by the kernel's rules: blanks are skipped, PATH is not searched."""
    line, newline, _ = head[2:].partition(b"\n")
    line = line.split(b"\0", 1)[0].lstrip(b" \t")
    name = line.replace(b"\t", b" ").split(b" ", 1)[0]
    if not name:
        raise CannotRun(NOT_EXECUTABLE, f"{script}: its #! line names no interpreter; write one after #!")
    if not newline and len(head) == _SCRIPT_LINE and line == name:
        raise CannotRun(NOT_EXECUTABLE, f"{script}: its #! line is longer than the kernel reads; shorten it")
    return os.fsdecode(name)


def _classify(descriptor: int, head: bytes, path: str) -> Note | None:
    """Why memopt must leave an ELF program alone, None if it may help. Raises ``CannotRun`` if the kernel would not run
    the file."""
    if not head.startswith(b"\x7fELF"):
        raise CannotRun(NOT_EXECUTABLE, _not_elf(head, path))
    status = os.fstat(descriptor)
    narrow = _check_elf(descriptor, head, status.st_size, path)
    set_group = status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP
    if status.st_mode & stat.S_ISUID or set_group or _has_capabilities(descriptor):
        return Note(Reason.SET_UID, path)
    return Note(Reason.THIRTY_TWO_BIT, path) if narrow else None


def _not_elf(head: bytes, path: str) -> str:
    if not head:
        return f"{path} is empty; build or copy it again"
    if head.startswith(b"MZ"):
        return f"{path} is a Windows program, not ELF; build it for Linux"
    if head.startswith((b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")):
        return f"{path} is a macOS or Java file, not ELF; build it for Linux or name its interpreter first"
    return f"{path} is neither an ELF program nor a script with #!; name its interpreter first, as in: sh {path}"


class _Header:
    """The fields of an ELF header by which the kernel decides whether to run the file; ``wide``: 64-bit."""

    __slots__ = ("entries", "entry_size", "kind", "table", "wide")

    def __init__(self, wide: bool, kind: int, table: int, entry_size: int, entries: int) -> None:
        self.wide, self.kind, self.table, self.entry_size, self.entries = wide, kind, table, entry_size, entries


def _header(head: bytes, path: str) -> _Header:
    if len(head) < 20:
        raise _truncated(path)
    order = ">" if head[5] == _BIG else "<"
    kind, machine = struct.unpack_from(order + "HH", head, 16)
    if machine not in (_MACHINE_I386, _MACHINE_X86_64) or order == ">":
        name = _MACHINES.get(machine, f"machine number {machine}")
        raise CannotRun(NOT_EXECUTABLE, f"{path} is a program for {name}, this is x86-64; build it for x86-64")
    wide = head[4] == _CLASS_64
    if head[4] not in (_CLASS_32, _CLASS_64) or head[5] != _LITTLE:
        raise CannotRun(NOT_EXECUTABLE, f"{path}: its ELF header is damaged; build or copy it again")
    if len(head) < (64 if wide else 52):
        raise _truncated(path)
    table, = struct.unpack_from("<Q" if wide else "<I", head, 32 if wide else 28)
    entry_size, entries = struct.unpack_from("<HH", head, 54 if wide else 42)
    return _Header(wide, kind, table, entry_size, entries)


def _check_elf(descriptor: int, head: bytes, size: int, path: str) -> bool:
    """Check the ELF header and the program headers; True for a 32-bit program. ``size``: bytes of the file."""
    header = _header(head, path)
    if header.kind not in (2, 3):
        what = _OBJECT_TYPES.get(header.kind, "not a program (its ELF header is damaged)")
        raise CannotRun(NOT_EXECUTABLE, f"{path} is {what}; name a linked program")
    expected = 56 if header.wide else 32
    length = header.entries * expected
    if header.entry_size != expected or not 0 < length <= _TABLE_LIMIT:
        raise CannotRun(NOT_EXECUTABLE, f"{path}: its ELF program headers are damaged; build or copy it again")
    if header.table + length > size:
        raise _truncated(path)
    table = os.pread(descriptor, length, header.table)
    if len(table) < length:
        raise _truncated(path)
    for start in range(0, length, expected):
        _check_segment(descriptor, table[start:start + expected], header.wide, size, path)
    return not header.wide


def _check_segment(descriptor: int, entry: bytes, wide: bool, size: int, path: str) -> None:
    if wide:
        kind, offset, length = struct.unpack_from("<I4xQ16xQ", entry)
    else:
        kind, offset, length = struct.unpack_from("<II8xI", entry)
    # The rest of a file's last page reads as zeros. The first access to a page beyond it raises SIGBUS.
    if kind == _PT_LOAD and length and offset + length > (size + _PAGE - 1) // _PAGE * _PAGE:
        raise _truncated(path)
    if kind == _PT_INTERP:
        _check_loader(descriptor, offset, length, size, path)


def _check_loader(descriptor: int, offset: int, length: int, size: int, path: str) -> None:
    if not 2 <= length <= _NAME_LIMIT:
        raise CannotRun(NOT_EXECUTABLE, f"{path}: the name of its loader is damaged; build or copy it again")
    if offset + length > size:
        raise _truncated(path)
    name = os.pread(descriptor, length, offset)
    if not name.endswith(b"\0"):
        raise CannotRun(NOT_EXECUTABLE, f"{path}: the name of its loader is damaged; build or copy it again")
    loader = os.fsdecode(name.split(b"\0", 1)[0])
    if not os.path.exists(loader):
        raise CannotRun(NOT_FOUND, f"{path}: its loader {loader!r} does not exist; install its C library")


def _truncated(path: str) -> CannotRun:
    return CannotRun(NOT_EXECUTABLE, f"{path} is truncated: its ELF headers point past its end; build or copy it again")


def _has_capabilities(descriptor: int) -> bool:
    try:
        return bool(os.getxattr(descriptor, "security.capability"))
    except OSError:
        return False
