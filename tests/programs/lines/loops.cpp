// Loops whose lines must be found, most of them through iterators, templates and lambdas: each is marked.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

typedef std::vector<std::vector<double>> Matrix;

void covariance(const Matrix &a, Matrix &c, int n)
{
    for (int i = 0; i < n; i++)         // loop
        for (int j = 0; j < n; j++)     // loop
            for (int k = 0; k < n; k++) // loop
                c[i][j] += a[k][i] * a[k][j];
}

double totals(const Matrix &c)
{
    double s = 0;
    for (const auto &row : c)                                // loop
        s += std::accumulate(row.begin(), row.end(), 0.0);   // loop
    for (auto row = c.begin(); row != c.end(); ++row)        // loop
        for (auto x = row->rbegin(); x != row->rend(); ++x)  // loop
            s = s * 0.5 + *x;
    return s;
}

template <typename F> static void each(std::vector<double> &v, F f)
{
    for (std::size_t n = 0; n < v.size(); n++) // loop
        f(v[n]);
}

double scaled(std::vector<double> &v, const std::vector<double> &w, double by)
{
    double most = 0;
    each(v, [&](double &x) {
        x *= by;
        most = std::max(most, x);
    });
    std::transform(v.begin(), v.end(), w.begin(), v.begin(), // loop
                   [by](double x, double y) { return x * by - y; });
    return most + std::inner_product(v.begin(), v.end(), w.begin(), 0.0); // loop
}
