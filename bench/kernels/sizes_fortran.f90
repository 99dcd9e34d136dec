! A Fortran library's product and smoothing, called in turn with many different sizes.
subroutine work(repetitions) bind(c)
  use iso_c_binding
  implicit none
  include "suite_fortran.inc"
  integer(c_int32_t), value :: repetitions
  real(8), allocatable :: a(:), b(:), c(:), d(:)
  integer :: largest, step, n, r
  largest = suite_size(613)
  step = suite_size(97)
  allocate (a(largest**2), b(largest**2), c(largest**2), d(largest**2))
  call suite_fill(a, int(largest, 8)**2, 1_8)
  call suite_fill(b, int(largest, 8)**2, 2_8)
  call suite_fill(c, int(largest, 8)**2, 3_8)
  call suite_fill(d, int(largest, 8)**2, 4_8)
  do r = 1, repetitions
    a(r) = a(r) + 0.25d0
    call suite_tick()
    do n = largest, largest / 3, -step
      call library_product(n, n - 3, a, b, c)
      call library_smooth(n, 20, c, d)
    end do
    call suite_tock()
    call suite_observe(c, int(largest, 8)**2)
  end do
  call suite_report(c, int(largest, 8)**2)
end subroutine
