"""The kernels of the suite, by family. The list was fixed before memopt was tuned on it.

Every kernel takes ``[repetitions [size ...]]``. Without arguments it runs for ten seconds or more at gcc -O2. With
``-DN=...`` the first size is a compile-time constant, and the arguments begin with the second size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.programs.variants import KERNELS as FOLDER
from bench.programs.variants import compile_c
from memopt.ir.reasons import Reason

NOT_REPLACED = "not to be replaced"
SMALL = 37  # -DN of the small builds that tests run


@dataclass(frozen=True, slots=True)
class Kernel:
    """A program of the suite."""

    name: str
    family: str
    source: str  # file in bench/kernels
    quick: int  # repetitions that take two to three seconds
    small: tuple[int, ...] = ()  # with -DN=37: the sizes after the first one, for a run that ends at once
    kept: frozenset[Reason] = frozenset()  # right reasons for leaving the nest alone; empty if it must be replaced
    library: str = ""  # source of a shared library

    @property
    def affine(self) -> bool:
        """Whether the nest is affine, so that memopt is expected to replace it."""
        return not self.kept

    @property
    def language(self) -> str:
        """The language, by the suffix of the source: C, C++ or Fortran."""
        return {"c": "C", "cpp": "C++", "f90": "Fortran"}[self.source.rpartition(".")[2]]

    @property
    def libraries(self) -> tuple[str, ...]:
        """Arguments behind the source on the compiler's command line."""
        return (str(FOLDER / "suite_fortran.c"), "-lm") if self.language == "Fortran" else ("-lm",)

    def compile(self, compiler: tuple[str, ...], output: Path, flags: Sequence[str] = ()) -> None:
        """Builds the program at ``output``, and its shared library beside it. Raises ``BuildError``."""
        libraries = list(self.libraries)
        if self.library:
            library = output.with_name(f"lib{output.name}.so")
            compile_c(compiler, FOLDER / self.library, library, [*flags, "-shared", "-fPIC"])
            libraries += [str(library), "-Wl,-rpath,$ORIGIN"]
        compile_c(compiler, FOLDER / self.source, output, list(flags), libraries)


_Line = tuple[str, int, tuple[int, ...]] | tuple[str, int, tuple[int, ...], str]  # source, quick, small, library


def _affine(family: str, *lines: _Line) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(line[0].partition(".")[0], family, line[0], line[1], line[2], library="".join(line[3:]))
        for line in lines
    )


def _left_alone(source: str, quick: int, small: tuple[int, ...], *kept: Reason) -> Kernel:
    return Kernel(source.partition(".")[0], NOT_REPLACED, source, quick, small, frozenset(kept))


_KERNELS = (
    *_affine(
        "products",
        ("gemm_nn.c", 6, (31, 29)),
        ("gemm_nt.c", 6, ()),
        ("gemm_tn.c", 9, ()),
        ("gemm_tt.c", 6, ()),
        ("two_products.c", 6, (31, 29, 41)),
        ("three_products.c", 6, ()),
        ("syrk.c", 9, (31,)),
        ("syr2k.c", 6, (31,)),
        ("trmm.c", 6, (31,)),
        ("symm.c", 6, (31,)),
        ("batched_gemm.c", 49, ()),
        ("contraction.c", 10, (11,)),
        ("gemv.c", 24, (31, 3)),
        ("gemv_t.c", 48, (31,)),
        ("gemv_pair.c", 24, ()),
        ("rank_one.c", 13, (31,)),
        ("rank_two.c", 31, ()),
        ("gemm_fortran.f90", 10, (37, 31, 29)),
        ("gemm_template.cpp", 8, (31, 29)),
        ("sizes_fortran.f90", 12, (37, 9), "library_fortran.f90"),
    ),
    *_affine(
        "solvers",
        ("cholesky.c", 22, ()),
        ("lu.c", 18, ()),
        ("lu_calls.c", 19, ()),
        ("blocked_lu.c", 12, (), "library_gemm.c"),
        ("trsm.c", 13, (31,)),
        ("trsv.c", 31, ()),
        ("gram_schmidt.c", 17, (31,)),
        ("levinson.c", 12, ()),
        ("tridiagonal.c", 12, (31, 2)),
        ("adi.c", 21, (3,)),
        ("lu_fortran.f90", 18, (37,)),
    ),
    *_affine(
        "stencils",
        ("jacobi_1d.c", 20, (7,)),
        ("jacobi_2d.c", 13, (7,)),
        ("jacobi_3d.c", 16, (5,)),
        ("nine_point.c", 26, (31, 5)),
        ("twentyseven_point.c", 14, ()),
        ("gauss_seidel.c", 21, (5,)),
        ("fdtd.c", 36, (31, 7)),
        ("heat_3d.c", 14, (3,)),
        ("poisson_19.c", 41, (3,)),
        ("upwind.c", 14, (31, 5)),
        ("sometimes_overlap.c", 24, (31, 3)),
        ("jacobi_fortran.f90", 15, (23, 3)),
        ("heat_vector.cpp", 41, (31, 5)),
    ),
    *_affine(
        "statistics",
        ("covariance.c", 9, (31,)),
        ("correlation.c", 12, ()),
        ("kernel_matrix.c", 32, (31, 7)),
        ("covariance_template.cpp", 19, (31,)),
    ),
    *_affine(
        "dynamic programming",
        ("shortest_paths.c", 12, ()),
        ("widest_paths.c", 22, ()),
        ("alignment.c", 45, (31,)),
        ("parenthesis.c", 17, ()),
    ),
    *_affine(
        "image",
        ("convolution.c", 30, (31,)),
        ("blur.c", 32, (31, 2)),
        ("sum_area.c", 39, (31, 2)),
        ("recursive_filter.c", 21, (31, 2)),
    ),
    *_affine(
        "types and strides",
        ("gemm_single.c", 6, ()),
        ("gemm_int32.c", 7, ()),
        ("gemm_int64.c", 9, ()),
        ("gemm_bytes.c", 7, (31, 29)),
        ("mixed_precision.c", 8, (31, 29)),
        ("transpose.c", 21, (2,)),
        ("column_norms.c", 33, (31,)),
        ("structures.c", 17, ()),
        ("gemm_complex.c", 12, ()),
        ("reversed.c", 13, ()),
    ),
    _left_alone("histogram.c", 38, (31, 2), Reason.DATA_DEPENDENT_ADDRESS),
    _left_alone("sparse_product.c", 37, (2,), Reason.DATA_DEPENDENT_ADDRESS, Reason.DATA_DEPENDENT_BRANCH,
                Reason.TRIP_COUNT, Reason.NON_AFFINE),
    _left_alone("linked_list.c", 28, (2,), Reason.DATA_DEPENDENT_ADDRESS, Reason.NOT_A_NEST, Reason.CARRIED_VALUE,
                Reason.TRIP_COUNT),
    _left_alone("early_exit.c", 24, (), Reason.DATA_DEPENDENT_BRANCH, Reason.TRIP_COUNT),
    _left_alone("unknown_call.c", 20, (1, 2), Reason.CALL),
    _left_alone("overlap_runtime.c", 130, (31, 1, 2), Reason.OVERLAP, Reason.NO_SCHEDULE, Reason.NO_PLAN),
    _left_alone("volatile_access.c", 6, (), Reason.SHARED_MAPPING),
    _left_alone("atomic_access.c", 17, (31,), Reason.ATOMIC),
)

KERNELS = {kernel.name: kernel for kernel in _KERNELS}
FAMILIES = tuple(dict.fromkeys(kernel.family for kernel in _KERNELS))
