"""Programs and libraries of Debian, rewritten: their own output stays the same, also after strip, objcopy and patchelf.

``python -m tests.support.rewritten_packages [--only WORD]`` prints a table. In each file a function, or the entry point
of a program, counts how often it is entered. The program is then run in its own harmless use, and what it writes is
compared with what the original writes; a library is put before the original's folder. A file that a tool breaks in its
original form as well is shown as "original too". Files that are not on the machine are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memopt.elf.image import Image
from memopt.elf.rewriting.refusals import NotRewritable, check_file
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import written
from memopt.ir.reasons import Rejected
from tests.support.rewritten import Ran, counting, function_start, run

_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_TEXT = "".join(f"{n * 7919 % 1000} line {n} of a text that is sorted, packed and searched\n" for n in range(3000))
TOOLS = {"strip": "strip -o OUT IN", "objcopy": "objcopy IN OUT",
         "patchelf": "patchelf --set-rpath /nowhere/at/all/that/is/long --output OUT IN"}
FAILED = ("different", "not run")


@dataclass(frozen=True, slots=True)
class Case:
    """``file`` is rewritten. ``function`` counts; "" for the entry point. ``command``: what is run."""

    file: str
    function: str
    command: tuple[str, ...]

    @property
    def is_library(self) -> bool:
        return ".so" in self.file


def _programs() -> Iterator[Case]:
    """Each line is a command; "~" stands for a space within a word."""
    lines = """
bash -c for((i=0;i<2000;i++));do((s+=i*i));done;echo~$s
dash -c i=0;while~[~$i~-lt~500~];do~i=$((i+1));done;echo~$i
gzip -9nc
bzip2 -c
xz -c
zstd -qc
lz4 -c
sort -n
sort --version
mawk {s+=$1}END{print~s}
sed s/line/row/g
grep -c 7
cut -d~ -f1
tr a-z A-Z
wc
tac
od -x
base64
md5sum
sha256sum
rev
nl
fmt
uniq -c
hexdump -C
xxd
iconv -f utf-8 -t utf-16
factor 1234567890123456789 600851475143
seq -f %.3f 1 0.25 500
expr 123456 * 654321
date -u -d @1000000000
numfmt --to=iec 123456789
perl -e $s+=$_**2~for~1..50000;print~"$s\\n"
tclsh8.6
sqlite3 :memory: select~sum(value*value)from~generate_series(1,5000)
bc -lq
jq -Rn [inputs]|length
openssl dgst -sha512
git --version
make --version
cmake --version
ls /usr/bin
find /usr/share/doc/bash
diff /etc/passwd /etc/group
tar -cf - -C /usr/share/doc bash
m4 -E
file /usr/bin/ls
readelf -hW /usr/bin/ls
objdump -d --start-address=0x4000 --stop-address=0x4200 /usr/bin/ls
nm -D /usr/bin/ls
x86_64-linux-gnu-ld.bfd --version
as --version
gdb --version
node -p [1,2,3].map(x=>x*x).join()
ldconfig -p
/usr/lib/gcc/x86_64-linux-gnu/12/cc1 -quiet --version
/usr/lib/llvm-14/bin/clang --version
octave-cli --version
vim.basic --version
troff -a
ed --version
gpg --version
ssh -V
curl --version
dpkg --print-architecture
ctags --version
eu-readelf -h /usr/bin/ls
"""
    for line in filter(None, lines.split("\n")):
        words = [word.replace("~", " ") for word in line.split(" ")]
        found = shutil.which(words[0])
        if found is not None:
            yield Case(os.path.realpath(found), "", (found, *words[1:]))


def _libraries() -> Iterator[Case]:
    octave = ("octave-cli", "-q", "--no-init-file", "--eval")
    table = (
        ("libz.so.1", "crc32", "/usr/bin/python3", "-c", "import zlib; print(zlib.crc32(b'a' * 9999))"),
        ("liblzma.so.5", "lzma_code", "xz", "-c"),
        ("libbz2.so.1.0", "BZ2_bzCompress", "bzip2", "-c"),
        ("libzstd.so.1", "ZSTD_compressStream", "cmake", "-E", "tar", "cf", "/dev/stdout", "--zstd", "/etc/passwd"),
        ("libcrypto.so.3", "EVP_DigestUpdate", "openssl", "dgst", "-sha256"),
        ("libssl.so.3", "OPENSSL_init_ssl", "openssl", "ciphers"),
        ("libc.so.6", "setlocale", "ls", "/usr/bin"),
        ("libm.so.6", "tgamma", "perl", "-MPOSIX", "-e", "print POSIX::tgamma(4.5)"),
        ("libstdc++.so.6", "_ZNSo5flushEv", "cmake", "--version"),
        ("libsqlite3.so.0", "sqlite3_step", "/usr/bin/python3", "-c",
         "import sqlite3; print(sqlite3.connect(':memory:').execute('select 6*7').fetchall())"),
        ("libexpat.so.1", "XML_ParseBuffer", "/usr/bin/python3", "-c",
         "import xml.etree.ElementTree as e; print(e.fromstring('<a><b/></a>')[0].tag)"),
        ("libffi.so.8", "ffi_call", "/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).abs(-7))"),
        ("libpcre2-8.so.0", "pcre2_match_8", "grep", "-cP", "l.ne"),
        ("libselinux.so.1", "lgetfilecon_raw", "ls", "-Z", "/etc/passwd"),
        ("libtinfo.so.6", "setupterm", "tput", "-T", "xterm", "bold"),
        ("libgmp.so.10", "__gmpz_mul", "expr", "99999999999999999999", "*", "88888888888888888888"),
        ("libmpfr.so.6", "mpfr_get_version", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "-quiet", "-version",
         "/dev/null", "-o", "/dev/null"),
        ("libbfd-2.40-system.so", "bfd_openr", "objdump", "-f", "/usr/bin/ls"),
        ("libmagic.so.1", "magic_load", "file", "/usr/bin/ls"),
        ("libgcrypt.so.20", "gcry_check_version", "gpg", "--print-md", "sha256"),
        ("libcurl.so.4", "curl_version_info", "curl", "--version"),
        ("libarchive.so.13", "archive_write_new", "cmake", "-E", "tar", "cf", "/dev/stdout", "/etc/passwd"),
        ("libLLVM-14.so.1", "LLVMInitializeX86Target", "/usr/lib/llvm-14/bin/clang", "--version"),
        ("libelf.so.1", "elf_begin", "eu-readelf", "-h", "/usr/bin/ls"),
        ("libfftw3.so.3", "fftw_execute_dft_r2c", *octave, "disp(abs(fft(1:8)))"),
        ("libblas.so.3", "dgemm_", *octave, "disp(magic(50)*magic(50))"),
        ("liblapack.so.3", "dgetrf_", *octave, "disp(det(magic(5)+eye(5)))"),
    )
    for name, function, program, *words in table:
        found, path = shutil.which(program), os.path.join(_LIBRARIES, name)
        if found is not None and os.path.exists(path):
            yield Case(path, function, (found, *words))


def cases() -> list[Case]:
    """What is on this machine of the list."""
    return [*_programs(), *_libraries()]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: words for the file as rewritten, and after each of ``TOOLS``; how much it has grown."""

    rewritten: str
    after: tuple[str, ...] = ()
    growth: int = 0

    @property
    def failed(self) -> bool:
        return any(word in (self.rewritten, *self.after) for word in FAILED)


def tried(case: Case, tools: Sequence[str] = tuple(TOOLS)) -> Outcome:
    """Rewrites the case's file and runs it; then again after each tool."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rewritten" / os.path.basename(case.file)
        out.parent.mkdir()
        with Image(case.file) as image:
            try:
                check_file(image, case.file)
                address = function_start(image, case.function) if case.function else image.entry
                content = written(image, counting(image, address))
            except NotRewritable as refused:
                return Outcome(f"refused: {refused.reason.value}")
            except Rejected as refused:
                return Outcome(f"no place for a patch: {refused.reason.value}")
            back = undone(content)
            if not back.whole or back.content != image.read(0, image.size):
                return Outcome("different")
            growth = len(content) - image.size
        out.write_bytes(content)
        out.chmod(0o755)
        told = _run(case, Path(case.file))
        after = tuple(_after(case, tool, out, told, Path(folder)) for tool in tools)
        return Outcome(_judged(told, _run(case, out)), after, growth)


def _after(case: Case, tool: str, out: Path, told: Ran, folder: Path) -> str:
    plain, treated = folder / tool / "plain" / out.name, folder / tool / "treated" / out.name
    for path in (plain, treated):
        path.parent.mkdir(parents=True)
    if not _applied(tool, case.file, plain):
        return "original too"
    if not _applied(tool, str(out), treated):
        return "different"
    found = _judged(told, _run(case, treated))
    return "original too" if found in FAILED and _judged(told, _run(case, plain)) == "different" else found


def _applied(tool: str, source: str, to: Path) -> bool:
    command = [{"IN": source, "OUT": str(to)}.get(word, word) for word in TOOLS[tool].split()]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(case: Case, file: Path) -> Ran:
    environment = {**os.environ, "LC_ALL": "C", "HOME": "/nonexistent"}
    if case.is_library:
        environment["LD_LIBRARY_PATH"] = str(file.parent)
        return run(case.command, of=file, given=_TEXT.encode(), environment=environment)
    return run(case.command, executable=str(file), given=_TEXT.encode(), environment=environment)


def _judged(told: Ran, found: Ran) -> str:
    if (told.output, told.errors, told.status) != (found.output, found.errors, found.status):
        return "different"
    if found.count == 0:
        return "not run"
    return "the same" if found.count else "the same, new code not seen"


def _say(*words: str) -> None:
    sys.stdout.write("".join(words) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Prints the table; 1 if a file is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose file's name holds this word")
    only = parser.parse_args().only
    _say("| file | function | growth | rewritten |", *(f" {tool} |" for tool in TOOLS))
    _say("| --- | --- | --- | --- |", *(" --- |" for _ in TOOLS))
    failed = count = 0
    for case in cases():
        if only in os.path.basename(case.file):
            found, count = tried(case), count + 1
            failed += found.failed
            _say(f"| {os.path.basename(case.file)} | {case.function or 'entry'} | {found.growth} | {found.rewritten} |",
                 *(f" {word} |" for word in found.after))
    _say(f"\n{count} files, {failed} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
