// C = A B with a matrix class of the usual kind: a vector, operator() and a template over the element.
#include <vector>

#include "suite.h"

template <typename T> class Matrix {
public:
    Matrix(int rows, int columns, uint64_t seed) : columns_(columns), elements_((size_t)rows * columns)
    {
        fill_real(elements_.data(), elements_.size(), seed);
    }
    T &operator()(int i, int j) { return elements_[(size_t)i * columns_ + j]; }
    const T &operator()(int i, int j) const { return elements_[(size_t)i * columns_ + j]; }
    int rows() const { return (int)(elements_.size() / columns_); }
    int columns() const { return columns_; }
    T *begin() { return elements_.data(); }
    size_t size() const { return elements_.size(); }

private:
    int columns_;
    std::vector<T> elements_;
};

template <typename T> KERNEL void multiply(const Matrix<T> &a, const Matrix<T> &b, Matrix<T> &c)
{
    for (int i = 0; i < c.rows(); i++)
        for (int j = 0; j < c.columns(); j++) {
            T sum = 0;
            for (int k = 0; k < a.columns(); k++)
                sum += a(i, k) * b(k, j);
            c(i, j) = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 39);
    int n = first_size(&run, 811), m = next_size(&run, 827), p = next_size(&run, 823);
    Matrix<double> a(n, m, 1), b(m, p, 2), c(n, p, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a(r % n, 0) += 0.25;
        tick(&run);
        multiply(a, b, c);
        tock(&run);
        observe_real(&run, c.begin(), c.size());
    }
    report_real("c", c.begin(), c.size());
    return finish(&run);
}
