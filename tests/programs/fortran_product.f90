! A matrix product in Fortran, whose run-time library handles SIGSEGV in every program. usage: program
subroutine multiply(n, a, b, c)
  implicit none
  integer, intent(in) :: n
  double precision, intent(in) :: a(n, n), b(n, n)
  double precision, intent(inout) :: c(n, n)
  integer :: i, j, k
  do j = 1, n
    do i = 1, n
      do k = 1, n
        c(i, j) = c(i, j) + a(i, k) * b(k, j)
      end do
    end do
  end do
end subroutine

program product
  implicit none
  integer, parameter :: n = 1201
  double precision, allocatable :: a(:, :), b(:, :), c(:, :)
  integer :: i, j
  allocate (a(n, n), b(n, n), c(n, n))
  do j = 1, n
    do i = 1, n
      a(i, j) = dble(mod(7 * i + 3 * j, 101)) / 101 - 0.5d0
      b(i, j) = dble(mod(5 * i + 11 * j, 103)) / 103 - 0.5d0
      c(i, j) = 0
    end do
  end do
  call multiply(n, a, b, c)
  do j = 1, n, 100
    write (*, '(13es26.17)') c(1:n:100, j)
  end do
end program
