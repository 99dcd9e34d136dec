/* C -= A B with leading dimensions, in a shared library. */
void library_gemm(int n, int m, int k, const double *a, int lda, const double *b, int ldb, double *c, int ldc)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += a[i * lda + l] * b[l * ldb + j];
            c[i * ldc + j] -= sum;
        }
}
