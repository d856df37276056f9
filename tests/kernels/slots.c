/* One check for each slot: the same inputs through the scalar kernel and another, every output byte compared (those
 * that a kernel must leave alone included). */
#include "tests/kernels/checkkern.h"

#include "common/fp.h"

#include <math.h>
#include <string.h>

static const int sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 172, 576};
static const int counts[] = {1, 2, 3, 5, 8, 17, 64};
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Two copies of an output, filled alike. */
struct pair {
    void  *a, *b;
    size_t bytes;
};

static struct pair pair_new(size_t bytes)
{
    struct pair p = {ck_new(bytes), ck_new(bytes), bytes};
    return p;
}

static struct pair pair_of(const void *src, size_t bytes)
{
    struct pair p = pair_new(bytes);

    memcpy(p.a, src, bytes);
    memcpy(p.b, src, bytes);
    return p;
}

static int differ(const struct pair *p) { return memcmp(p->a, p->b, p->bytes) != 0; }

/* ---- conversions ---------------------------------------------------------------------------------------- */

static int check_widen(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_BF16; dtype++)
        for (int i = 0; i < COUNT(sizes); i++, ck_free_all()) {
            size_t      n = (size_t)sizes[i];
            struct pair out = pair_new((n + 3) * 4);
            const void *src = ck_elements(n, dtype);

            ref->widen(out.a, src, dtype, n);
            got->widen(out.b, src, dtype, n);
            bad += differ(&out);
        }
    for (int dtype = LLMQ_DTYPE_F16; dtype <= LLMQ_DTYPE_BF16; dtype++, ck_free_all()) { /* all there are */
        struct pair out = pair_new(65536 * 4);
        uint16_t   *src = ck_new(65536 * 2);

        for (int i = 0; i < 65536; i++)
            src[i] = (uint16_t)i;
        ref->widen(out.a, src, dtype, 65536);
        got->widen(out.b, src, dtype, 65536);
        bad += differ(&out);
    }
    return bad;
}

static int check_narrow(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int i = 0; i < COUNT(sizes); i++, ck_free_all()) {
        size_t       n = (size_t)sizes[i];
        struct pair  out = pair_new((n + 3) * 2);
        const float *src = ck_floats(n);

        ref->narrow_f16(out.a, src, n);
        got->narrow_f16(out.b, src, n);
        bad += differ(&out);
    }
    for (int round = 0; round < 64; round++, ck_free_all()) { /* any bits, and around every F16 */
        struct pair out = pair_new(4096 * 2);
        float      *src = ck_new(4096 * 4);

        for (int i = 0; i < 4096; i++) {
            uint32_t near = llmq_fp_bits(llmq_f16_to_f32((uint16_t)(round * 1024 + i / 4)));
            src[i] = llmq_fp_from_bits(i % 4 == 0 ? (uint32_t)ck_random() : near + (uint32_t)(i % 4) * 0x1000u - 0x2000u);
        }
        ref->narrow_f16(out.a, src, 4096);
        got->narrow_f16(out.b, src, 4096);
        bad += differ(&out);
    }
    return bad;
}

/* ---- linear --------------------------------------------------------------------------------------------------- */

static int dense_case(void (*ref)(const struct cpu_dense *), void (*got)(const struct cpu_dense *), int dtype, int n,
                      int k, int m)
{
    size_t           ldw = (size_t)k + (size_t)(ck_random() % 2), ldx = (size_t)k + 1, ldy = (size_t)n + 3;
    struct pair      y = pair_of(ck_floats((size_t)m * ldy), (size_t)m * ldy * 4);
    struct cpu_dense a = {.w = ck_elements((size_t)n * ldw, dtype), .ldw = ldw, .ldx = ldx, .ldy = ldy,
                          .x = ck_floats((size_t)m * ldx), .bias = ck_random() % 2 ? ck_floats((size_t)n) : NULL,
                          .dtype = dtype, .n = n, .m = m, .k = k, .add = (int)(ck_random() % 2)};

    a.y = y.a;
    ref(&a);
    a.y = y.b;
    got(&a);
    return differ(&y);
}

static int check_dense_one(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_BF16; dtype++)
        for (int k = 0; k < COUNT(sizes); k++)
            for (int n = 1; n < 20; n++, ck_free_all())
                bad += dense_case(ref->dense_one, got->dense_one, dtype, n, sizes[k], 1);
    return bad;
}

static int check_dense_many(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int k = 0; k < COUNT(sizes); k++)
        for (int n = 1; n < 12; n++)
            for (int m = 1; m < 12; m++, ck_free_all())
                bad += dense_case(ref->dense_many, got->dense_many, LLMQ_DTYPE_F32, n, sizes[k], m);
    return bad;
}

static int check_act_quant(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    static const int   widths[] = {32, 64, 128, 256};
    static const float special[] = {0.0f, 1e-31f, 1e-30f, 1e-45f, 3e38f, INFINITY, NAN, -0.0f};
    int                bad = 0;

    for (int w = 0; w < COUNT(widths); w++)
        for (int i = 0; i < COUNT(sizes); i++)
            for (int s = 0; s < COUNT(special) + 4; s++, ck_free_all()) {
                int         k = sizes[i], k_pad = (k + 63) & ~63, ng = (k + widths[w] - 1) / widths[w];
                struct pair v = pair_new((size_t)k_pad * 2), xs = pair_new((size_t)ng * 4), sum = pair_new((size_t)ng * 4);
                float      *x = ck_floats((size_t)k);

                if (s < COUNT(special)) {
                    memset(x, 0, (size_t)k * 4);
                    x[ck_random() % (uint64_t)k] = special[s];
                }
                ref->act_quant(v.a, xs.a, sum.a, x, k, k_pad, widths[w]);
                got->act_quant(v.b, xs.b, sum.b, x, k, k_pad, widths[w]);
                bad += differ(&v) + differ(&xs) + differ(&sum);
            }
    return bad;
}

struct cpu_tiles ck_tiles(int bits, int sym, int group, int n, int k, int m)
{
    struct cpu_kernels scalar;
    int                k_pad = (k + 63) & ~63, blocks = (n + 15) / 16, gw = !group || group > 256 ? 256 : group;
    int                ng = (k + gw - 1) / gw, groups = group ? (k + group - 1) / group : 1;
    int16_t           *v = ck_new((size_t)m * (size_t)k_pad * 2);
    float             *xs = ck_new((size_t)(m * ng) * 4), *x = ck_floats((size_t)m * (size_t)k);
    int32_t           *sum = ck_new((size_t)(m * ng) * 4);
    struct cpu_tiles   a = {.w = ck_bytes((size_t)blocks * (size_t)k_pad * 2 * (size_t)bits),
                            .scales = ck_scales((size_t)(blocks * groups) * 16),
                            .zeros = sym ? NULL : ck_bytes((size_t)(blocks * groups) * 16), .v = v, .xs = xs, .sum = sum,
                            .bias = ck_random() % 2 ? ck_floats((size_t)n) : NULL, .ldy = (size_t)n + 3,
                            .zero = 1 << (bits - 1), .n = n, .m = m, .k_pad = k_pad, .gw = gw, .ng = ng, .groups = groups,
                            .per_scale = group ? group / gw : ng, .add = (int)(ck_random() % 2)};

    kernels_fill(&scalar, CPU_SCALAR);
    for (int t = 0; t < m; t++)
        scalar.act_quant(v + (size_t)t * (size_t)k_pad, xs + t * ng, sum + t * ng, x + (size_t)t * (size_t)k, k, k_pad, gw);
    for (int i = 0; !sym && bits == 4 && i < blocks * groups * 16; i++)
        ((uint8_t *)a.zeros)[i] &= 15;
    return a;
}

static int tiles_case(cpu_tiles_fn ref, cpu_tiles_fn got, struct cpu_tiles *a)
{
    int         blocks = (a->n + 15) / 16;
    struct pair y = pair_of(ck_floats((size_t)a->m * a->ldy), (size_t)a->m * a->ldy * 4);

    a->y = y.a;
    ref(a, 0, blocks);
    a->y = y.b;
    got(a, 0, blocks / 2);
    got(a, blocks / 2, blocks);
    return differ(&y);
}

/* All codes and activations at their largest: the sums come as near to 32 bits as they can. */
static int tiles_extreme(cpu_tiles_fn ref, cpu_tiles_fn got, int bits, int m)
{
    struct cpu_tiles a = ck_tiles(bits, 1, 0, 16, 512, m);

    memset((uint8_t *)a.w, 255, (size_t)512 * 2 * (size_t)bits);
    for (int i = 0; i < m * 512; i++)
        ((int16_t *)a.v)[i] = i / 512 % 2 ? -CPU_ACT_MAX : CPU_ACT_MAX;
    for (int i = 0; i < m * a.ng; i++)
        ((int32_t *)a.sum)[i] = i / a.ng % 2 ? -CPU_ACT_MAX * 256 : CPU_ACT_MAX * 256;
    return tiles_case(ref, got, &a);
}

static int check_tiles(cpu_tiles_fn ref, cpu_tiles_fn got, int bits, int one)
{
    static const int groups[] = {32, 64, 128, 256, 0, 512}, outputs[] = {1, 15, 16, 17, 33};
    static const int inputs[] = {1, 31, 33, 64, 65, 127, 172, 300, 576, 1100};
    int              bad = tiles_extreme(ref, got, bits, one ? 1 : 5);

    for (int g = 0; g < COUNT(groups); g++)
        for (int k = 0; k < COUNT(inputs); k++)
            for (int n = 0; n < COUNT(outputs); n++)
                for (int m = 0; m < (one ? 1 : COUNT(counts)); m++)
                    for (int sym = 0; sym < 2 && (counts[m] < 17 || n % 2); sym++, ck_free_all()) {
                        struct cpu_tiles a = ck_tiles(bits, sym, groups[g], outputs[n], inputs[k], counts[m]);
                        bad += tiles_case(ref, got, &a);
                    }
    return bad;
}

static int check_q4_one(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_tiles(ref->q4_one, got->q4_one, 4, 1);
}

static int check_q8_one(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_tiles(ref->q8_one, got->q8_one, 8, 1);
}

static int check_q4_many(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_tiles(ref->q4_many, got->q4_many, 4, 0);
}

static int check_q8_many(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_tiles(ref->q8_many, got->q8_many, 8, 0);
}

/* ---- elementwise ------------------------------------------------------------------------------------------------- */

static int check_rmsnorm(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int i = 0; i < COUNT(sizes); i++, ck_free_all()) {
        int          d = sizes[i];
        struct pair  y = pair_new((size_t)(d + 3) * 4);
        const float *x = ck_floats((size_t)d), *w = ck_floats((size_t)d);

        ref->rmsnorm(y.a, x, w, d, 1e-5f);
        got->rmsnorm(y.b, x, w, d, 1e-5f);
        bad += differ(&y);
    }
    return bad;
}

static int check_rope(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int i = 0; i < COUNT(sizes); i++, ck_free_all()) {
        int          half = sizes[i];
        struct pair  x = pair_of(ck_floats((size_t)half * 2 + 3), ((size_t)half * 2 + 3) * 4);
        const float *cs = ck_floats((size_t)half * 2);

        ref->rope(x.a, cs, half);
        got->rope(x.b, cs, half);
        bad += differ(&x);
    }
    return bad;
}

static int check_swiglu(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    static const float special[] = {0, -0.0f, 86.9f, 87.0f, 87.1f, 88.0f, 88.1f, 1e30f, -86.9f, -87.1f, -88.1f, -1e30f};
    int                bad = 0;

    for (int i = 0; i < COUNT(sizes); i++, ck_free_all()) {
        int          n = sizes[i];
        struct pair  y = pair_new((size_t)(n + 3) * 4);
        float       *g = ck_floats((size_t)n);
        const float *u = ck_floats((size_t)n);

        for (int j = 0; j < n; j++)
            g[j] = j % 3 == 0 ? special[j / 3 % COUNT(special)] : g[j] * 10;
        ref->swiglu(y.a, g, u, (size_t)n);
        got->swiglu(y.b, g, u, (size_t)n);
        bad += differ(&y);
    }
    return bad;
}

/* ---- attention ------------------------------------------------------------------------------------------------------ */

enum { HEADS = 6 };
static const int head_sizes[HEADS] = {8, 16, 20, 64, 80, 128};

/* Rows with one unused element between them, of a head size and type. */
static const void **rows_new(int n, int hd, int dtype)
{
    const void **row = ck_new((size_t)n * sizeof *row);
    size_t       bytes = dtype == LLMQ_DTYPE_F32 ? 4 : 2;
    const char  *all = ck_elements((size_t)n * (size_t)(hd + 1), dtype);

    for (int i = 0; i < n; i++)
        row[i] = all + (size_t)i * (size_t)(hd + 1) * bytes;
    return row;
}

static int scores_case(const struct cpu_kernels *ref, const struct cpu_kernels *got, int hd, int n, int rows, int many,
                       int dtype)
{
    struct pair         s = pair_new((size_t)rows * CPU_PART * 4);
    const float *const *q = (const float *const *)rows_new(rows, hd, LLMQ_DTYPE_F32);

    if (many) {
        const float *kt = ck_floats((size_t)((n + 15) / 16) * 16 * (size_t)hd);
        ref->scores_many(s.a, q, rows, kt, n, hd, 0.125f);
        got->scores_many(s.b, q, rows, kt, n, hd, 0.125f);
    } else {
        const void *const *k = rows_new(n, hd, dtype);
        ref->scores_few(s.a, q, rows, k, dtype, n, hd, 0.3f);
        got->scores_few(s.b, q, rows, k, dtype, n, hd, 0.3f);
    }
    return differ(&s);
}

static int check_scores(const struct cpu_kernels *ref, const struct cpu_kernels *got, int many)
{
    static const int keys[] = {1, 3, 4, 15, 16, 17, 31, 64, 255, 256};
    int              bad = 0;

    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < COUNT(keys); i++)
            for (int rows = 1; rows <= CPU_ROWS; rows++)
                for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_F16; dtype++, ck_free_all())
                    bad += scores_case(ref, got, head_sizes[h], keys[i], rows, many, dtype);
    return bad;
}

static int check_scores_few(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_scores(ref, got, 0);
}

static int check_scores_many(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    return check_scores(ref, got, 1);
}

static int check_keys_turn(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int h = 0; h < HEADS; h++)
        for (int n = 1; n <= 16; n++)
            for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_F16; dtype++, ck_free_all()) {
                struct pair        kt = pair_new((size_t)head_sizes[h] * 16 * 4);
                const void *const *k = rows_new(n, head_sizes[h], dtype);

                ref->keys_turn(kt.a, k, dtype, n, head_sizes[h]);
                got->keys_turn(kt.b, k, dtype, n, head_sizes[h]);
                bad += differ(&kt);
            }
    return bad;
}

static int check_softmax(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int n = 1; n <= 256; n += n < 40 ? 1 : 27, ck_free_all()) {
        struct pair s = pair_of(ck_floats(260), 260 * 4), m = pair_new(4), l = pair_new(4);

        ref->softmax(s.a, n, m.a, l.a);
        got->softmax(s.b, n, m.b, l.b);
        bad += differ(&s) + differ(&m) + differ(&l);
    }
    return bad;
}

static int check_values(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    static const int first[] = {1, 2, 7, 64, 253};
    int              bad = 0;

    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < COUNT(first); i++)
            for (int rows = 1; rows <= CPU_ROWS; rows++)
                for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_F16; dtype++, ck_free_all()) {
                    int                hd = head_sizes[h], n[CPU_ROWS];
                    struct pair        o = pair_new((size_t)(rows * hd + 3) * 4);
                    const float       *s = ck_floats(CPU_ROWS * CPU_PART);
                    const void *const *v = rows_new(256, hd, dtype);

                    for (int r = 0; r < CPU_ROWS; r++)
                        n[r] = first[i] + (r + i) / 2;
                    ref->values(o.a, s, rows, n, v, dtype, hd);
                    got->values(o.b, s, rows, n, v, dtype, hd);
                    bad += differ(&o);
                }
    return bad;
}

static int check_merge(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int h = 0; h < HEADS; h++, ck_free_all()) {
        size_t       n = (size_t)head_sizes[h] + 3;
        struct pair  o = pair_of(ck_floats(n), n * 4);
        const float *p = ck_floats(n);

        ref->merge(o.a, p, 0.7f, 0.9f, head_sizes[h]);
        got->merge(o.b, p, 0.7f, 0.9f, head_sizes[h]);
        bad += differ(&o);
    }
    return bad;
}

static int check_divide(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    int bad = 0;

    for (int h = 0; h < HEADS; h++, ck_free_all()) {
        size_t      n = (size_t)head_sizes[h] + 3;
        struct pair o = pair_of(ck_floats(n), n * 4);

        ref->divide(o.a, 3.7f, head_sizes[h]);
        got->divide(o.b, 3.7f, head_sizes[h]);
        bad += differ(&o);
    }
    return bad;
}

/* ---- statistics ------------------------------------------------------------------------------------------------------- */

static int check_gram(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    static const int tokens[] = {1, 2, 63, 64}, cols[] = {1, 7, 8, 9, 16, 17, 31, 32};
    int              bad = 0;

    for (int t = 0; t < COUNT(tokens); t++)
        for (int c = 0; c < COUNT(cols); c++)
            for (int rows = 1; rows <= CPU_GRAM_I; rows++)
                for (int diag = -3; diag <= 40; diag += diag < 8 ? 1 : 8, ck_free_all()) {
                    struct pair g = pair_new(CPU_GRAM_I * 35 * 8);
                    float      *xi = ck_floats(64 * 40), *xj = ck_floats(64 * 40);

                    for (int i = 0; i < CPU_GRAM_I * 35; i++)
                        ((double *)g.a)[i] = ((double *)g.b)[i] = (double)ck_uniform();
                    ref->gram(g.a, 35, xi, xj, 40, tokens[t], rows, cols[c], diag);
                    got->gram(g.b, 35, xi, xj, 40, tokens[t], rows, cols[c], diag);
                    bad += differ(&g);
                }
    return bad;
}

static int check_logsumexp(const struct cpu_kernels *ref, const struct cpu_kernels *got)
{
    static const int lengths[] = {1, 15, 16, 17, 4095, 4096, 4097, 8200, 49152};
    int              bad = 0;

    for (int i = 0; i < COUNT(lengths); i++, ck_free_all()) {
        struct pair  max = pair_new(4), sum = pair_new(8);
        const float *x = ck_floats((size_t)lengths[i]);

        ref->logsumexp(x, lengths[i], max.a, sum.a);
        got->logsumexp(x, lengths[i], max.b, sum.b);
        bad += differ(&max) + differ(&sum);
    }
    return bad;
}

#define SLOT(name, fn) {#name, offsetof(struct cpu_kernels, name), fn}
const struct ck_slot ck_slots[] = {
    SLOT(widen, check_widen),
    SLOT(narrow_f16, check_narrow),
    SLOT(dense_one, check_dense_one),
    SLOT(dense_many, check_dense_many),
    SLOT(act_quant, check_act_quant),
    SLOT(q4_one, check_q4_one),
    SLOT(q8_one, check_q8_one),
    SLOT(q4_many, check_q4_many),
    SLOT(q8_many, check_q8_many),
    SLOT(rmsnorm, check_rmsnorm),
    SLOT(rope, check_rope),
    SLOT(swiglu, check_swiglu),
    SLOT(scores_few, check_scores_few),
    SLOT(keys_turn, check_keys_turn),
    SLOT(scores_many, check_scores_many),
    SLOT(softmax, check_softmax),
    SLOT(values, check_values),
    SLOT(merge, check_merge),
    SLOT(divide, check_divide),
    SLOT(gram, check_gram),
    SLOT(logsumexp, check_logsumexp),
};
const int ck_n_slots = COUNT(ck_slots);
_Static_assert(sizeof ck_slots / sizeof ck_slots[0] == sizeof(struct cpu_kernels) / sizeof(void (*)(void)),
               "every slot has a check");
