! Routines of a shared library: explicit-shape arrays, sizes from the caller.
subroutine library_product(n, m, a, b, c)
  implicit none
  integer, intent(in) :: n, m
  real(8), intent(in) :: a(m, n), b(m, n)
  real(8), intent(inout) :: c(n, n)
  integer :: i, j, k
  do j = 1, n
    do i = 1, n
      c(i, j) = 0.0d0
      do k = 1, m
        c(i, j) = c(i, j) + a(k, i) * b(k, j)
      end do
    end do
  end do
end subroutine

subroutine library_smooth(n, steps, u, v)
  implicit none
  integer, intent(in) :: n, steps
  real(8), intent(inout) :: u(n, n), v(n, n)
  integer :: t, i, j
  do t = 1, steps
    do j = 2, n - 1
      do i = 2, n - 1
        v(i, j) = 0.25d0 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1))
      end do
    end do
    do j = 2, n - 1
      do i = 2, n - 1
        u(i, j) = v(i, j)
      end do
    end do
  end do
end subroutine
