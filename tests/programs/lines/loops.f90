! Loops whose lines must be found: each line that begins one is marked.
subroutine smooth(u, v, f, n)
  implicit none
  integer, intent(in) :: n
  real(8), intent(inout) :: u(n, n), v(n, n)
  real(8), intent(in) :: f(n, n)
  integer :: i, j
  do j = 2, n - 1 ! loop
    do i = 2, n - 1 ! loop
      v(i, j) = 0.25d0 * (u(i - 1, j) + u(i + 1, j) &
              + u(i, j - 1) + u(i, j + 1)) - f(i, j)
    end do
  end do
end subroutine

real(8) function residual(u, f, n)
  implicit none
  integer, intent(in) :: n
  real(8), intent(in) :: u(n), f(n)
  real(8) :: r
  integer :: i
  residual = 0
  do i = 2, n - 1 ! loop
    r = f(i) - (u(i - 1) - 2 * u(i) + u(i + 1))
    residual = residual + r * r
    if (residual > 1d30) exit
  end do
end function

subroutine update(a, b, c, n)
  implicit none
  integer, intent(in) :: n
  real(8), intent(inout) :: a(n, n)
  real(8), intent(in) :: b(n, n), c(n, n)
  a(:, :) = a(:, :) + b(:, :) * c(:, :) ! loop
end subroutine
