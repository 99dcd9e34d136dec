"""Which files are not rewritten, and why: all that the file itself shows.

Example: a self-extracting program looks for its data from the end of its own file. With a segment there it would not
find them, so it is refused: PAYLOAD.

In: an image and its path; for a loop, the bytes that its patch displaces. Out: nothing, or ``NotRewritable`` with its
reason. 32-bit and relocatable files do not come here: ``Image`` refuses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct

from memopt.elf import relocations
from memopt.elf.image import ET_EXEC, PF_W, PF_X, PT_LOAD, SECTION_HEADER, ElfError, Image
from memopt.elf.landing import landing_pads
from memopt.elf.rewriting.record import segment_start
from memopt.ir.reasons import Reason, Rejected

_PT_INTERP, _PT_NOTE = 3, 4
_DT_NEEDED, _DT_TEXTREL, _DT_FLAGS, _DF_TEXTREL, _DT_STRTAB, _DT_STRSZ = 1, 22, 30, 4, 5, 10
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 0x08000000
_NOTE = struct.Struct("<III")  # sizes of name and description, type
_GNU_PROPERTY, _FEATURES, _SHADOW_STACK = 5, 0xC0000002, 2  # NT_GNU_PROPERTY_TYPE_0, ..._X86_FEATURE_1_AND, ..._SHSTK
_MOST_NOTE_BYTES = 1 << 16
_GET_FLAGS, _VERITY = 0x80086601, 0x00100000  # FS_IOC_GETFLAGS, FS_VERITY_FL
_REACH = 1900 << 20
_COLLECTED_SCRATCH = 64 << 10
_MOST_NAME = 256
_GLIBC_LOADER, _MUSL_LOADER = "_rtld_global", "__dls3"  # a variable, a function
_GO_SECTIONS = (".note.go.buildid", ".go.buildinfo", ".gopclntab")
_JAVA = ("JNI_CreateJavaVM", "graal_create_isolate")


class NotRewritable(Rejected):
    """The file, or a loop of it, cannot be rewritten. ``str`` of it is one line for the user."""


def check_file(image: Image, path: str) -> None:
    """Raises ``NotRewritable`` where the file at ``path``, opened as ``image``, must not be rewritten; ``ElfError``
    for malformed files; ``OSError`` where it cannot be looked at."""
    _check_rights(path)
    _check_signatures(path)
    if segment_start(image) is not None:
        raise NotRewritable(Reason.REWRITTEN, "memopt rewrite --undo gives the original")
    if not image.sections:
        raise NotRewritable(Reason.NO_SECTIONS, "memopt could not describe what it adds")
    _check_segments(image)
    _check_end(image)
    if not _has_interpreter(image) and (relocations.exports(image, _MUSL_LOADER) or
                                        relocations.variable(image, _GLIBC_LOADER) is not None):
        raise NotRewritable(Reason.DYNAMIC_LOADER)
    _check_runtime(image)


def check_scratch(image: Image, size: int) -> None:
    """Raises ``NotRewritable(COLLECTOR)`` where ``size`` bytes more of zeroed memory would be scanned again and again:
    Boehm's collector reads all writable segments."""
    if size > _COLLECTED_SCRATCH and _has_collector(image):
        raise NotRewritable(Reason.COLLECTOR, f"{size >> 10} KiB; at most {_COLLECTED_SCRATCH >> 10} KiB are added")


def check_reach(code: int, header: int) -> None:
    """Raises ``NotRewritable(NO_REACH)`` where no jump leads from ``header`` to new code at ``code`` (link-time)."""
    if abs(code - header) > _REACH:
        raise NotRewritable(Reason.NO_REACH, f"{abs(code - header) >> 20} MiB from {header:#x}")


def check_displaced(image: Image, function: int, displaced: range, *, calls: bool) -> None:
    """Raises ``NotRewritable`` where the original bytes at ``displaced`` (link-time) must stay in their place.

    ``function``: the start of the function they belong to. ``calls``: they hold a call. LANDING_PAD: an exception goes
    on inside them. SHADOW_STACK: a moved call would store its return address by a plain move.
    """
    for pad in landing_pads(image, function):
        if displaced.start < pad.start < displaced.stop:
            raise NotRewritable(Reason.LANDING_PAD, f"at {pad.start:#x}")
    if calls and has_shadow_stack(image):
        raise NotRewritable(Reason.SHADOW_STACK, f"at {displaced.start:#x}")


def has_shadow_stack(image: Image) -> bool:
    """Whether the file's notes ask for shadow stacks (SHSTK in .note.gnu.property; AMD64 supplement to the ABI)."""
    for segment in image.segments:
        if segment.kind == _PT_NOTE and segment.alignment == 8:
            content = image.read(segment.offset, min(segment.file_size, _MOST_NOTE_BYTES))
            with contextlib.suppress(struct.error):
                if _features(content) & _SHADOW_STACK:
                    return True
    return False


def _features(notes: bytes) -> int:
    """The x86 features in the first note, if it is one of GNU properties. Raises ``struct.error`` where it is cut."""
    name_size, size, kind = _NOTE.unpack_from(notes)
    if notes[_NOTE.size:_NOTE.size + 4] != b"GNU\0" or name_size != 4 or kind != _GNU_PROPERTY:
        return 0
    at, end = _NOTE.size + 4, _NOTE.size + 4 + size
    while at + 8 <= end:
        property_kind, length = struct.unpack_from("<II", notes, at)
        if property_kind == _FEATURES:
            features: int = struct.unpack_from("<I", notes, at + 8)[0]
            return features
        at += 8 + -(-length // 8) * 8
    return 0


def _check_rights(path: str) -> None:
    if os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID) or _attribute(path, "security.capability"):
        raise NotRewritable(Reason.SET_UID)


def _check_signatures(path: str) -> None:
    folder, name = os.path.split(os.path.realpath(path))
    stem = name.partition(".so")[0]
    for beside in (f"{name}.hmac", f".{name}.hmac", f"{stem}.chk"):
        if os.path.lexists(os.path.join(folder, beside)):
            raise NotRewritable(Reason.SIGNED, f"{beside} lies beside it")
    if _attribute(path, "security.ima"):
        raise NotRewritable(Reason.SIGNED, "attribute security.ima")
    if _has_verity(path):
        raise NotRewritable(Reason.SIGNED, "fs-verity")


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except OSError:  # it has none, or the file system knows no attributes
        return b""


def _has_verity(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    flags = bytearray(8)
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    except OSError:  # the file system knows no such flags
        return False
    finally:
        os.close(descriptor)
    return bool(int.from_bytes(flags[:4], "little") & _VERITY)


def _check_segments(image: Image) -> None:
    if any(s.kind == PT_LOAD and s.flags & PF_W and s.flags & PF_X for s in image.segments):
        raise NotRewritable(Reason.WRITABLE_CODE)
    if any(tag == _DT_TEXTREL or (tag == _DT_FLAGS and value & _DF_TEXTREL) for tag, value, _ in image.dynamic):
        raise NotRewritable(Reason.TEXT_RELOCATIONS)


def _check_end(image: Image) -> None:
    ends = [image.sections_at + len(image.sections) * SECTION_HEADER.size]
    ends += [s.offset + s.file_size for s in image.sections]
    ends += [s.file_end for s in image.segments if s.kind == PT_LOAD]
    end = max(ends)
    if end > image.size:
        raise ElfError("truncated")
    if any(image.read(end, image.size - end)):
        raise NotRewritable(Reason.PAYLOAD, f"{image.size - end} bytes")


def is_program(image: Image) -> bool:
    """Whether the file is a program, not a shared library: it is loaded at a fixed address, names a program
    interpreter, or says that it is position-independent (DF_1_PIE)."""
    pie = any(tag == _DT_FLAGS_1 and value & _DF_1_PIE for tag, value, _ in image.dynamic)
    return image.kind == ET_EXEC or _has_interpreter(image) or pie


def _has_interpreter(image: Image) -> bool:
    return any(s.kind == _PT_INTERP for s in image.segments)


def _check_runtime(image: Image) -> None:
    if any(s.name in _GO_SECTIONS for s in image.sections):
        raise NotRewritable(Reason.RUNTIME, "Go")
    if any(relocations.exports(image, name) for name in _JAVA):
        raise NotRewritable(Reason.RUNTIME, "Java")


def _has_collector(image: Image) -> bool:
    if any(name.startswith("libgc.so") for name in needed(image)):
        return True
    return relocations.defines(image, "GC_init") or "GC_init" in relocations.imports(image)


def needed(image: Image) -> tuple[str, ...]:
    """The shared objects that the file names (DT_NEEDED). Raises ``ElfError``."""
    tags = dict(reversed([(tag, value) for tag, value, _ in image.dynamic]))
    if _DT_STRTAB not in tags:
        return ()
    names_at = image.offset_of(tags[_DT_STRTAB])
    return tuple(image.string(names_at + value, _MOST_NAME) for tag, value, _ in image.dynamic if tag == _DT_NEEDED)
