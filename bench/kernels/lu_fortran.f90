! L U factors in place without pivoting, by columns, arrays of a leading dimension of their own.
subroutine lu(n, lda, a)
  implicit none
  integer, intent(in) :: n, lda
  real(8), intent(inout) :: a(lda, n)
  integer :: i, j, k
  do k = 1, n - 1
    do i = k + 1, n
      a(i, k) = a(i, k) / a(k, k)
    end do
    do j = k + 1, n
      do i = k + 1, n
        a(i, j) = a(i, j) - a(i, k) * a(k, j)
      end do
    end do
  end do
end subroutine

subroutine work(repetitions) bind(c)
  use iso_c_binding
  implicit none
  include "suite_fortran.inc"
  integer(c_int32_t), value :: repetitions
  real(8), allocatable :: a(:, :), saved(:, :)
  integer :: n, lda, i, r
  n = suite_size(1013)
  lda = n + 6
  allocate (a(lda, n), saved(lda, n))
  call suite_fill(saved, size(saved, kind=8), 1_8)
  do i = 1, n
    saved(i, i) = n
  end do
  do r = 1, repetitions
    saved(1, 1) = saved(1, 1) + 0.25d0
    a = saved
    call suite_tick()
    call lu(n, lda, a)
    call suite_tock()
    call suite_observe(a, size(a, kind=8))
  end do
  call suite_report(a, size(a, kind=8))
end subroutine
