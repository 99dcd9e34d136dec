/* Products of matrices whose rows are as long as the call says: program m n k lda ldb ldc shift. C begins shift doubles
 * behind A; a negative shift: behind A and B. -DORDER=ijk names the loops, outermost first; -DT_A, -DT_B, -DT_C transpose;
 * -DINT=int counts in 32 bits; -DLD(p)=*p reads the lengths of rows from memory in the loops. */
#include <stdio.h>
#include <stdlib.h>

#ifndef ORDER
#define ORDER ijk
#endif
#ifndef INT
#define INT long
#endif
#ifndef LD
#define LD(p) ld_##p
#endif
#ifdef T_A
#define A(i, k) a[(k) * LD(a) + (i)]
#else
#define A(i, k) a[(i) * LD(a) + (k)]
#endif
#ifdef T_B
#define B(k, j) b[(j) * LD(b) + (k)]
#else
#define B(k, j) b[(k) * LD(b) + (j)]
#endif
#ifdef T_C
#define C(i, j) c[(j) * LD(c) + (i)]
#else
#define C(i, j) c[(i) * LD(c) + (j)]
#endif
#define FOR_i for (INT i = 0; i < m; i++)
#define FOR_j for (INT j = 0; j < n; j++)
#define FOR_k for (INT k = 0; k < q; k++)
#define FIRST_ijk FOR_i
#define SECOND_ijk FOR_j
#define THIRD_ijk FOR_k
#define FIRST_ikj FOR_i
#define SECOND_ikj FOR_k
#define THIRD_ikj FOR_j
#define FIRST_jik FOR_j
#define SECOND_jik FOR_i
#define THIRD_jik FOR_k
#define FIRST_jki FOR_j
#define SECOND_jki FOR_k
#define THIRD_jki FOR_i
#define FIRST_kij FOR_k
#define SECOND_kij FOR_i
#define THIRD_kij FOR_j
#define FIRST_kji FOR_k
#define SECOND_kji FOR_j
#define THIRD_kji FOR_i
#define CAT(one, two) one##two
#define NAMED(one, two) CAT(one, two)

__attribute__((noipa)) static void nest(INT m, INT n, INT q, const double *a, const INT *p_a, const double *b,
                                        const INT *p_b, double *c, const INT *p_c)
{
    INT ld_a = *p_a, ld_b = *p_b, ld_c = *p_c;
    NAMED(FIRST_, ORDER)
        NAMED(SECOND_, ORDER)
            NAMED(THIRD_, ORDER)
                C(i, j) += A(i, k) * B(k, j);
    (void)ld_a, (void)ld_b, (void)ld_c;
}

int main(int argc, char **argv)
{
    long sizes[7], room = 1 << 14;
    for (int n = 0; n < 7; n++)
        sizes[n] = n + 1 < argc ? atol(argv[n + 1]) : 8;
    double *all = malloc(3 * (size_t)room * sizeof(double)), *c = all + (sizes[6] < 0 ? 2 * room : sizes[6]);
    for (long n = 0; n < 3 * room; n++)
        all[n] = (double)(n * 7 % 31) - 11;
    INT lengths[3] = {(INT)sizes[3], (INT)sizes[4], (INT)sizes[5]};
    nest((INT)sizes[0], (INT)sizes[1], (INT)sizes[2], all, lengths, all + room, lengths + 1, c, lengths + 2);
    double sum = 0;
    for (long n = 0; n < 3 * room; n++)
        sum = sum * 0.999 + all[n];
    printf("%a\n", sum);
    return 0;
}
