// Covariance of variables stored one per row, in single precision, through iterators and a view of rows.
#include <numeric>
#include <vector>

#include "suite.h"

template <typename T> struct Rows {
    T *start;
    int rows, columns;
    T *operator[](int i) const { return start + (size_t)i * columns; }
};

template <typename T> KERNEL void covariance(Rows<T> x, Rows<T> cov)
{
    for (int i = 0; i < x.rows; i++) {
        T mean = std::accumulate(x[i], x[i] + x.columns, T(0)) / x.columns;
        for (T *element = x[i]; element != x[i] + x.columns; ++element)
            *element -= mean;
    }
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j <= i; j++)
            cov[i][j] = cov[j][i] = std::inner_product(x[i], x[i] + x.columns, x[j], T(0)) / (x.columns - 1);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 89);
    int variables = first_size(&run, 733), observations = next_size(&run, 1009);
    std::vector<float> x((size_t)variables * observations), cov((size_t)variables * variables);
    for (int r = 0; r < run.repetitions; r++) {
        fill_single(x.data(), x.size(), r);
        tick(&run);
        covariance(Rows<float>{x.data(), variables, observations}, Rows<float>{cov.data(), variables, variables});
        tock(&run);
        observe_single(&run, cov.data(), cov.size());
    }
    report_single("cov", cov.data(), cov.size());
    return finish(&run);
}
