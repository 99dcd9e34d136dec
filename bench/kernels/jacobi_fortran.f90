! Jacobi in three dimensions with a time loop, array bounds from 0, copied back by an array assignment.
subroutine jacobi(steps, n, u, v)
  implicit none
  integer, intent(in) :: steps, n
  real(8), intent(inout) :: u(0:n + 1, 0:n + 1, 0:n + 1), v(0:n + 1, 0:n + 1, 0:n + 1)
  real(8), parameter :: sixth = 1.0d0 / 6.0d0
  integer :: t, i, j, k
  do t = 1, steps
    do k = 1, n
      do j = 1, n
        do i = 1, n
          v(i, j, k) = sixth * (u(i - 1, j, k) + u(i + 1, j, k) + u(i, j - 1, k) + u(i, j + 1, k) &
                                + u(i, j, k - 1) + u(i, j, k + 1))
        end do
      end do
    end do
    u(1:n, 1:n, 1:n) = v(1:n, 1:n, 1:n)
  end do
end subroutine

subroutine work(repetitions) bind(c)
  use iso_c_binding
  implicit none
  include "suite_fortran.inc"
  integer(c_int32_t), value :: repetitions
  real(8), allocatable :: u(:, :, :), v(:, :, :)
  integer :: n, steps, r
  n = suite_size(201)
  steps = suite_size(10)
  allocate (u(0:n + 1, 0:n + 1, 0:n + 1), v(0:n + 1, 0:n + 1, 0:n + 1))
  call suite_fill(u, size(u, kind=8), 1_8)
  call suite_fill(v, size(v, kind=8), 2_8)
  do r = 1, repetitions
    call suite_tick()
    call jacobi(steps, n, u, v)
    call suite_tock()
    call suite_observe(u, size(u, kind=8))
  end do
  call suite_report(u, size(u, kind=8))
end subroutine
