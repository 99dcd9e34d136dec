#define N 300
void product(double *c, const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) {
        double s = 0;
        for (int k = 0; k < n; k++) s += a[i * N + k + OFF] * b[k * N + j];
        c[i * N + j] = s;
    }
}
void product_end(void) {}
