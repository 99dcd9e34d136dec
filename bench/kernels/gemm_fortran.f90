! C = C + alpha A B, explicit-shape arrays by columns, the textbook order of loops.
subroutine gemm(n, m, p, alpha, a, b, c)
  implicit none
  integer, intent(in) :: n, m, p
  real(8), intent(in) :: alpha, a(n, m), b(m, p)
  real(8), intent(inout) :: c(n, p)
  integer :: i, j, k
  do i = 1, n
    do j = 1, p
      do k = 1, m
        c(i, j) = c(i, j) + alpha * a(i, k) * b(k, j)
      end do
    end do
  end do
end subroutine

subroutine work(repetitions) bind(c)
  use iso_c_binding
  implicit none
  include "suite_fortran.inc"
  integer(c_int32_t), value :: repetitions
  real(8), allocatable :: a(:, :), b(:, :), c(:, :)
  integer :: n, m, p, r
  n = suite_size(757)
  m = suite_size(773)
  p = suite_size(769)
  allocate (a(n, m), b(m, p), c(n, p))
  call suite_fill(a, int(n, 8) * m, 1_8)
  call suite_fill(b, int(m, 8) * p, 2_8)
  call suite_fill(c, int(n, 8) * p, 3_8)
  do r = 1, repetitions
    call suite_tick()
    call gemm(n, m, p, merge(1.25d0, -1.25d0, mod(r, 2) == 0), a, b, c)
    call suite_tock()
    call suite_observe(c, int(n, 8) * p)
  end do
  call suite_report(c, int(n, 8) * p)
end subroutine
