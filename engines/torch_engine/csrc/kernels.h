/* Kernels for processors: products with weights that stay in blocks of codes, and attention of decodes in place.
 *
 * Addresses are those of memory that is large enough; whoever calls answers for that. Nothing here knows Python, and
 * nothing depends on the size of a page of memory or on an alignment beyond that of a float.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define TILE 64   /* outputs */
#define FEW 4     /* rows that are computed without unpacking weights to memory */
#define MANY 6    /* rows at a time else */
#define PANEL 64  /* inputs whose weights are unpacked at a time */
#define AHEAD 16  /* groups that are asked of memory before they are needed, */
#define KV_AHEAD 2 /* and blocks of KV */
#define ROWS 96   /* of inputs that stay in the second cache while all tiles are gone through */
#define OWN_ROWS 48 /* for a thread, at least, that computes rows of its own: each unpacks all weights then */
#define CACHE_LINE 64
#define WIDE 4    /* registers of outputs, at most, that products with rounded inputs are computed for at a time */
#define QUERIES 48 /* of a prompt that attend together */
#define MOST_HEADS 64 /* query heads to a KV head */

/* How codes are held: ``engines.models.files.block_kinds.Form``. ``group`` inputs share a scale, and a minimum if there are. */
struct form {
    int bits, group, minima;
};
#define FORM_0 {4, 32, 1}
#define FORM_1 {8, 32, 0}
#define FORM_2 {8, 32, 1}
#define FORM_3 {8, 16, 0}
#define FORM_4 {16, 32, 0} /* bfloat16: no codes, and no scales; for products with inputs that are not rounded */
static const struct form forms[] = {FORM_0, FORM_1, FORM_2, FORM_3, FORM_4};
#define NUM_FORMS ((int)(sizeof forms / sizeof *forms))
#define WORDS(form) ((form).group * (form).bits / 32)
#define NUM_SCALES(form) ((form).bits == 16 ? 0 : 1 + (form).minima)
#define HEAD_BYTES(form) (TILE * 4 * NUM_SCALES(form))
#define GROUP_BYTES(form) ((size_t)(HEAD_BYTES(form) + WORDS(form) * TILE * 4))

/* How an element of KV is held. Bytes are codes, and a token's float scale follows those of a head. */
#define KV_FLOATS 0
#define KV_HALVES 1 /* bfloat16 */
#define KV_BYTES 2
#define NUM_KV 3

/* Bytes of a head of a token. */
static inline size_t token_bytes(int kv, size_t dim) {
    return kv == KV_FLOATS ? 4 * dim : kv == KV_HALVES ? 2 * dim : dim + 4;
}

/* Where a layer's KV is: ``rows`` [*][block_size] of tokens' heads, a row a head of a block, values kv_heads rows after
 * keys. */
struct attention {
    const char *rows;
    int kv;
    size_t block_size, head_dim, kv_heads;
    int heads; /* query heads to a KV head */
    float scale;
    size_t window; /* tokens that a query sees; 0: all */
    float softcap; /* of scores; 0: none */
};

/* Inputs [rows][ins] in 8 bits: ``scales`` [rows][ins / 32], and these times the sums of the codes. ``offsets`` [rows][ins /
 * group] are -128 times the sums of the codes that meet a group of weights. */
#define ROUNDED 32
struct rounded {
    const int8_t *codes;
    const float *scales, *sums;
    const int32_t *offsets;
};

/* Where rows become that. */
struct rounding {
    int8_t *codes;
    float *scales, *sums;
    int32_t *offsets;
};

/* Ask memory for what comes later: into the second cache, which has more requests under way than the first. */
static inline __attribute__((always_inline)) void prefetch(const char *at, size_t num_bytes) {
    for (size_t offset = 0; offset < num_bytes; offset += CACHE_LINE) __builtin_prefetch(at + offset, 0, 2);
}

/* What a request's queries of a KV head read KV_AHEAD blocks after the ``i``-th of ``blocks`` of keys and as many of values:
 * after the last, keys of the next head. To ask for, no more: there may be none. */
static inline const char *kv_to_come(const struct attention *a, const int64_t *table, size_t blocks, int kv_head,
                                     size_t i, size_t row_bytes) {
    const size_t part = (i + KV_AHEAD) / blocks, at = (i + KV_AHEAD) % blocks;
    return a->rows + (table[at] + part % 2 * a->kv_heads + kv_head + part / 2) * row_bytes;
}

#define JOIN(name, suffix) name##_##suffix

/* How a set of kernels multiplies bytes. */
#define PLAIN_BYTES 0
#define AVX2_BYTES 1

#if defined(__x86_64__)

#define KERNEL(name) JOIN(name, avx512)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define LANES 16
#define VECTORS 4
#define BYTES AVX2_BYTES
#include "compute.h"
#include "attention.h"
#include "rows.h"
#include "rounded.h"
#undef BYTES
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

#include "vnni.h"

#define KERNEL(name) JOIN(name, avx2)
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define VECTORS 2
#define BYTES AVX2_BYTES
#include "compute.h"
#include "attention.h"
#include "rows.h"
#include "rounded.h"
#undef BYTES
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

#endif

#define KERNEL(name) JOIN(name, plain)
#define TARGET
#define LANES 4
#define VECTORS 4
#define BYTES PLAIN_BYTES
#include "compute.h"
#include "attention.h"
#include "rows.h"
#include "rounded.h"
#undef BYTES
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

#if defined(__aarch64__)

#define DOT 1
#include "neon.h"
#undef DOT

#define DOT 0
#include "neon.h"
#undef DOT

#endif

struct kernels {
    const char *name;
    void (*product[NUM_FORMS])(const char *, const float *, size_t, float *, size_t, int, int);
    void (*round_row)(const float *, size_t, const struct form, int8_t *, float *, float *, int32_t *);
    void (*dots[NUM_FORMS])(const char *, const struct rounded *, size_t, float *, size_t, int, int);
    void (*attend)(const struct attention *, const float *, const int64_t *, size_t, int, float *, size_t, float *);
    void (*turn)(const struct attention *, const int64_t *, size_t, size_t, int, float *);
    void (*spread)(const struct attention *, const int64_t *, size_t, size_t, int, float *);
    void (*attend_rows)(const struct attention *, const float *, size_t, const int64_t *, size_t, int, int,
                        const float *, const float *, float *, size_t, float *, size_t);
    void (*store)(int, const float *, size_t, char *);
    void (*normalise)(const float *, const float *, float, float *, size_t);
    void (*rotate)(float *, size_t, size_t, size_t, const float *);
    void (*gate)(const float *, const float *, float *, size_t);
};

/* ``dots``: of which set those are, which gives the name. */
#define KERNELS(suffix, dots)                                                                       \
    {#dots,                                                                                         \
     {product0_##suffix, product1_##suffix, product2_##suffix, product3_##suffix, product4_##suffix},                   \
     round_row_##suffix,                                                                            \
     {dots0_##dots, dots1_##dots, dots2_##dots, dots3_##dots, NULL},                                \
     attend_##suffix, turn_##suffix, spread_##suffix, attend_rows_##suffix, store_##suffix,          \
     normalise_##suffix, rotate_##suffix, gate_##suffix}

static const struct kernels all[] = {
#if defined(__x86_64__)
    KERNELS(avx512, avx512_vnni),
    KERNELS(avx512, avx512),
    KERNELS(avx2, avx2),
#elif defined(__aarch64__) /* registers of four floats are NEON's */
    KERNELS(plain, neon_dot),
    KERNELS(plain, neon),
#endif
    KERNELS(plain, plain),
};

static int runs(const struct kernels *kernels) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (strcmp(kernels->name, "avx512_vnni") == 0) return avx512 && __builtin_cpu_supports("avx512vnni");
    if (strcmp(kernels->name, "avx512") == 0) return avx512;
    if (strcmp(kernels->name, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__aarch64__) && !defined(__ARM_FEATURE_DOTPROD)
    if (strcmp(kernels->name, "neon_dot") == 0) {
#if defined(__linux__)
        return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
        return 0;
#endif
    }
#endif
    return 1;
}

/* The kernels of that name; NULL if this processor has none. */
static const struct kernels *kernels_named(const char *name) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0 && runs(&all[i])) return &all[i];
    return NULL;
}

static size_t thread_number(void) {
#ifdef _OPENMP
    extern int omp_get_thread_num(void);
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
}

/* How many rows has a block that one thread computes with all tiles? Such threads meet once a product, and each has as much
 * to do. 0: there are too few rows for that, and threads share the tiles of each block. */
static size_t rows_of_own(size_t rows, int threads) {
    if (threads == 1 || rows < (size_t)threads * OWN_ROWS) return 0;
    const size_t round = (size_t)threads * ROWS, blocks = (rows + round - 1) / round * (size_t)threads;
    return (rows + blocks - 1) / blocks;
}

static void product_of_block(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                             size_t stride, int rows, size_t outs, size_t ins, int adds, int threads) {
    const size_t tile_bytes = ins / forms[form].group * GROUP_BYTES(forms[form]);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long tile = 0; tile < (long)(outs / TILE); tile++)
        kernels->product[form](weights + tile * tile_bytes, x, ins, out + tile * TILE, stride, rows, adds);
}

/* ``stride``: floats from a row of ``out`` to the next. */
static void product(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                    size_t stride, size_t rows, size_t outs, size_t ins, int adds, int threads) {
    const size_t own = rows_of_own(rows, threads), size = own ? own : ROWS;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (own)
    for (long block = 0; block < (long)((rows + size - 1) / size); block++) {
        const size_t first = block * size;
        product_of_block(kernels, form, weights, x + first * ins, out + first * stride, stride,
                         (int)(rows - first < size ? rows - first : size), outs, ins, adds, own ? 1 : threads);
    }
}

/* The same with inputs that are rounded first, into ``to``. */
static void product_of_rounded(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                               size_t stride, int rows, size_t outs, size_t ins, int adds, int threads,
                               const struct rounding *to) {
    const size_t tile_bytes = ins / forms[form].group * GROUP_BYTES(forms[form]);
    const size_t num_scales = ins / ROUNDED, num_groups = ins / forms[form].group;
    const struct rounded rounded = {to->codes, to->scales, to->sums, to->offsets};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for
        for (long row = 0; row < (long)rows; row++)
            kernels->round_row(x + row * ins, ins, forms[form], to->codes + row * ins, to->scales + row * num_scales,
                               to->sums + row * num_scales, to->offsets + row * num_groups);
#pragma omp for
        for (long tile = 0; tile < (long)(outs / TILE); tile++)
            kernels->dots[form](weights + tile * tile_bytes, &rounded, ins, out + tile * TILE, stride, rows, adds);
    }
}

/* `product` with inputs that are rounded first. False without memory for them. */
static int product_rounded(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                           size_t stride, size_t rows, size_t outs, size_t ins, int adds, int threads) {
    const size_t own = rows_of_own(rows, threads), size = own ? own : rows < ROWS ? rows : ROWS;
    const size_t num_scales = ins / ROUNDED, num_groups = ins / forms[form].group, most = own ? threads * size : size;
    int8_t *codes = malloc(most * ins);
    float *scales = malloc(2 * most * num_scales * sizeof *scales), *sums = scales + most * num_scales;
    int32_t *offsets = malloc(most * num_groups * sizeof *offsets);
    const int done = codes != NULL && scales != NULL && offsets != NULL;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (own)
    for (long block = 0; block < (done ? (long)((rows + size - 1) / size) : 0); block++) {
        const size_t first = block * size, at = own ? thread_number() * size : 0;
        const struct rounding to = {codes + at * ins, scales + at * num_scales, sums + at * num_scales,
                                    offsets + at * num_groups};
        product_of_rounded(kernels, form, weights, x + first * ins, out + first * stride, stride,
                           (int)(rows - first < size ? rows - first : size), outs, ins, adds, own ? 1 : threads, &to);
    }
    free(codes);
    free(scales);
    free(offsets);
    return done;
}

/* ``tables`` [requests][width]: the row at which each block begins. False without memory for the scores. */
static int attention(const struct kernels *kernels, const struct attention *a, const float *queries, size_t stride,
                     const int64_t *tables, size_t width, const int64_t *lengths, long requests, float *out,
                     int threads) {
    const long items = requests * (long)a->kv_heads;
    const size_t most = width * a->block_size, dim = a->head_dim;
    float *scores = malloc((size_t)threads * a->heads * most * sizeof *scores);
    if (scores == NULL) return 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *own = scores + thread_number() * a->heads * most;
#pragma omp for schedule(dynamic)
        for (long item = 0; item < items; item++) {
            long request = item / (long)a->kv_heads;
            int head = (int)(item % (long)a->kv_heads);
            kernels->attend(a, queries + request * stride + head * a->heads * dim, tables + request * width,
                            (size_t)lengths[request], head, own, most, out + item * a->heads * dim);
        }
    }
    free(scores);
    return 1;
}

/* ``num`` queries of one request after ``before`` tokens. */
static int attention_of_chunk(const struct kernels *kernels, const struct attention *a, const float *queries,
                              size_t stride, const int64_t *table, size_t before, size_t num, float *out,
                              int threads) {
    const size_t seen = before + num, tiles = (seen + TILE - 1) / TILE, most = tiles * TILE, dim = a->head_dim;
    const size_t outs = a->kv_heads * a->heads * dim, head_floats = most * dim;
    const long parts = (long)((num + QUERIES - 1) / QUERIES);
    const int spreads = a->kv != KV_FLOATS; /* values that are floats are read where they are */
    float *panels = malloc((1 + spreads) * a->kv_heads * head_floats * sizeof *panels);
    float *scores = malloc((size_t)threads * QUERIES * most * sizeof *scores);
    if (panels == NULL || scores == NULL) {
        free(panels);
        free(scores);
        return 0;
    }
    float *values = panels + spreads * a->kv_heads * head_floats;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *own = scores + thread_number() * QUERIES * most;
#pragma omp for
        for (long item = 0; item < (long)(a->kv_heads * tiles); item++) {
            size_t head = item / tiles, first = item % tiles * TILE, some = seen - first < TILE ? seen - first : TILE;
            kernels->turn(a, table, first, some, (int)head, panels + head * head_floats + first * dim);
            if (spreads) kernels->spread(a, table, first, some, (int)head, values + head * head_floats + first * dim);
        }
#pragma omp for schedule(dynamic)
        for (long item = 0; item < parts * (long)a->kv_heads * a->heads; item++) {
            long part = parts - 1 - item / ((long)a->kv_heads * a->heads); /* the longest first */
            long head = item % ((long)a->kv_heads * a->heads);
            int kv_head = (int)(head / a->heads);
            size_t first = part * QUERIES;
            kernels->attend_rows(a, queries + first * stride + head * dim, stride, table, before + first,
                                 (int)(num - first < QUERIES ? num - first : QUERIES), kv_head,
                                 panels + kv_head * head_floats, values + kv_head * head_floats, own, most,
                                 out + first * outs + head * dim, outs);
        }
    }
    free(panels);
    free(scores);
    return 1;
}

/* KV [tokens][heads][dim], tokens ``stride`` apart, becomes the tokens' heads of ``rows`` that ``index`` names. */
static void store(const struct kernels *kernels, int kv, const float *from, size_t stride, const int64_t *index,
                  size_t tokens, size_t heads, size_t dim, char *rows, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long token = 0; token < (long)tokens; token++)
        for (size_t head = 0; head < heads; head++)
            kernels->store(kv, from + token * stride + head * dim, dim,
                           rows + index[token * heads + head] * token_bytes(kv, dim));
}

static void normalise(const struct kernels *kernels, const float *x, const float *weight, float epsilon, float *out,
                      size_t rows, size_t num, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < (long)rows; row++)
        kernels->normalise(x + row * num, weight, epsilon, out + row * num, num);
}

/* ``x`` [rows][heads][head_dim], rows ``stride`` apart; ``angles`` [rows][dims]. */
static void rotate(const struct kernels *kernels, float *x, size_t stride, size_t rows, size_t heads, size_t head_dim,
                   size_t dims, const float *angles, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < (long)rows; row++)
        kernels->rotate(x + row * stride, heads, head_dim, dims, angles + row * dims);
}

static void gate(const struct kernels *kernels, const float *x, float *out, size_t rows, size_t num, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < (long)rows; row++)
        kernels->gate(x + 2 * row * num, x + (2 * row + 1) * num, out + row * num, num);
}

/* ``codes`` [outs][ins], 16-bit ones if that is what the form has; ``scales`` and ``minima`` [outs][groups]. */
static void pack(const struct form form, const uint8_t *codes, const float *scales, const float *minima, char *packed,
                 size_t outs, size_t ins) {
    const size_t groups = ins / form.group;
    const int in_word = 32 / form.bits;
    for (size_t out = 0; out < outs; out++)
        for (size_t g = 0; g < groups; g++) {
            char *group = packed + ((out / TILE) * groups + g) * GROUP_BYTES(form);
            const size_t from = out * ins + g * form.group;
            float *head = (float *)group + out % TILE;
            uint32_t *word = (uint32_t *)(group + HEAD_BYTES(form)) + out % TILE;
            if (form.bits < 16) head[0] = scales[out * groups + g];
            if (form.minima) head[TILE] = minima[out * groups + g];
            for (int k = 0; k < form.group; k++) {
                uint32_t *to = word + k / in_word * TILE;
                const uint32_t code = form.bits == 16 ? ((const uint16_t *)codes)[from + k] : codes[from + k];
                *to = (k % in_word ? *to : 0) | code << (form.bits * (k % in_word));
            }
        }
}
