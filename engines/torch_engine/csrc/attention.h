/* Attention to KV where it lies, and how KV is stored. Included after compute.h for each instruction set,
 * and as that needs KERNEL, TARGET and LANES.
 */

typedef float KERNEL(vec) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t KERNEL(ivec) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t KERNEL(halves) __attribute__((vector_size(2 * LANES), aligned(2)));
typedef int8_t KERNEL(codes) __attribute__((vector_size(LANES), aligned(1)));
#define vec KERNEL(vec)
#define ivec KERNEL(ivec)
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE vec KERNEL(splat)(float x) {
    return x - (vec){0};
}

#define FOLD(x, ...) x = x + __builtin_shufflevector(x, x, __VA_ARGS__)
#if LANES == 16
#define FOLD_ALL(x)                                                        \
    FOLD(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);         \
    FOLD(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);         \
    FOLD(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#elif LANES == 8
#define FOLD_ALL(x)                     \
    FOLD(x, 4, 5, 6, 7, 0, 1, 2, 3);    \
    FOLD(x, 2, 3, 0, 1, 6, 7, 4, 5)
#else
#define FOLD_ALL(x) FOLD(x, 2, 3, 0, 1)
#endif
INLINE float KERNEL(total)(vec x) {
    FOLD_ALL(x);
    return x[0] + x[1];
}

INLINE int32_t KERNEL(count)(ivec x) {
    FOLD_ALL(x);
    return x[0] + x[1];
}
#undef FOLD_ALL
#undef FOLD

/* e**x for x <= 0, within 2e-7 of it (Cephes' polynomial for 2**f); below -87 it stays at e**-87. */
INLINE vec KERNEL(exponential)(vec x) {
    const float bias = 12582912.0f; /* 1.5 * 2**23: adding it rounds to a whole number */
    vec low = KERNEL(splat)(-87.0f);
    ivec is_low = x < low;
    x = (vec)((is_low & (ivec)low) | (~is_low & (ivec)x));
    vec shifted = x * 1.44269504f + bias;
    vec whole = shifted - bias;
    vec f = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    vec p = KERNEL(splat)(1.9875691500e-4f);
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    ivec power = (__builtin_convertvector(whole, ivec) + 127) << 23;
    return p * (vec)power;
}

/* Codes of 8 bits, which compilers widen one by one if they are not told how. */
INLINE ivec KERNEL(whole)(const char *at) {
#if LANES == 16
    return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at));
#elif LANES == 8
    return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return __builtin_convertvector(*(KERNEL(codes) *)at, ivec);
#endif
}

/* Elements of a token's head from ``d`` on; of bytes, to be multiplied by their scale. */
INLINE vec KERNEL(load)(const char *at, size_t d, const int kv) {
    if (kv == KV_FLOATS) return *(vec *)((const float *)at + d);
    if (kv == KV_BYTES) return __builtin_convertvector(KERNEL(whole)(at + d), vec);
    return (vec)(__builtin_convertvector(*(KERNEL(halves) *)((const uint16_t *)at + d), ivec) << 16);
}

/* What those are to be multiplied by. */
INLINE float KERNEL(scale_of)(const char *at, size_t dim, const int kv) {
    float scale = 1;
    if (kv == KV_BYTES) memcpy(&scale, at + dim, sizeof scale);
    return scale;
}

/* Scores [heads][most] of a token's key, for ``heads`` query heads that share it. */
INLINE void KERNEL(score)(const char *key, const float *queries, size_t dim, float *scores, size_t most, int heads,
                          const int kv) {
    for (int h = 0; h < heads; h++) {
        vec sum = KERNEL(load)(key, 0, kv) * *(vec *)(queries + h * dim);
        for (size_t d = LANES; d < dim; d += LANES) sum += KERNEL(load)(key, d, kv) * *(vec *)(queries + h * dim + d);
        scores[h * most] = KERNEL(total)(sum) * KERNEL(scale_of)(key, dim, kv);
    }
}

/* Turn ``num`` scores, times ``scale``, into weights of a softmax, not yet divided by their sum, which is returned. */
INLINE float KERNEL(soften)(float *scores, size_t num, float scale) {
    const size_t whole = num / LANES * LANES;
    vec largest = KERNEL(splat)(scores[0]), sums = {0};
    for (size_t t = 0; t < whole; t += LANES) {
        const vec score = *(vec *)(scores + t);
        const ivec is_larger = score > largest;
        largest = (vec)((is_larger & (ivec)score) | (~is_larger & (ivec)largest));
    }
    float most = largest[0];
    for (int i = 1; i < LANES; i++) most = largest[i] > most ? largest[i] : most;
    for (size_t t = whole; t < num; t++) most = scores[t] > most ? scores[t] : most;
    for (size_t t = 0; t < whole; t += LANES) {
        vec e = KERNEL(exponential)((*(vec *)(scores + t) - most) * scale);
        *(vec *)(scores + t) = e;
        sums += e;
    }
    float sum = KERNEL(total)(sums);
    for (size_t t = whole; t < num; t++) {
        float e = KERNEL(exponential)(KERNEL(splat)((scores[t] - most) * scale))[0];
        scores[t] = e;
        sum += e;
    }
    return sum;
}

/* Weighted sums of the values of ``num`` tokens at ``columns`` registers from ``d`` on of ``heads`` heads: added to
 * sums [heads][dim]. */
INLINE void KERNEL(mix)(const char *values, size_t num, size_t dim, size_t d, const float *weights, size_t most,
                        float *sums, const int heads, const int columns, const int kv) {
    vec sum[4][4];
    sums += d;
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < columns; c++) sum[h][c] = *(vec *)(sums + h * dim + c * LANES);
    for (size_t t = 0; t < num; t++) {
        const char *own = values + t * token_bytes(kv, dim);
        const float scale = KERNEL(scale_of)(own, dim, kv);
        float weight[4];
        for (int h = 0; h < heads; h++) weight[h] = weights[h * most + t] * scale;
        for (int c = 0; c < columns; c++) {
            vec value = KERNEL(load)(own, d + c * LANES, kv);
            for (int h = 0; h < heads; h++) sum[h][c] += value * weight[h];
        }
    }
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < columns; c++) *(vec *)(sums + h * dim + c * LANES) = sum[h][c];
}

#define MIX(columns)                                                                                          \
    switch (some) {                                                                                           \
        case 4: KERNEL(mix)(values, num, dim, d, weights, most, sums, 4, columns, kv); break;                 \
        case 3: KERNEL(mix)(values, num, dim, d, weights, most, sums, 3, columns, kv); break;                 \
        case 2: KERNEL(mix)(values, num, dim, d, weights, most, sums, 2, columns, kv); break;                 \
        default: KERNEL(mix)(values, num, dim, d, weights, most, sums, 1, columns, kv); break;                \
    }

INLINE void KERNEL(mix_block)(const char *values, size_t num, size_t dim, const float *weights, size_t most,
                              float *sums, int heads, const int kv) {
    for (int h = 0; h < heads; h += 4, weights += 4 * most, sums += 4 * dim) {
        int some = heads - h < 4 ? heads - h : 4;
        size_t d = 0;
        for (; d + 4 * LANES <= dim; d += 4 * LANES) MIX(4)
        for (; d < dim; d += LANES) MIX(1)
    }
}
#undef MIX

/* Press ``num`` scores, times ``scale``, into (-cap, cap): what they are in the end over ``scale``. */
TARGET static void KERNEL(press)(float *scores, size_t num, float scale, float cap) {
    const float to_twice = 2.0f * scale / cap, from = cap / scale;
    for (size_t t = 0; t < num; t += LANES) {
        float some[LANES] = {0};
        const size_t count = num - t < LANES ? num - t : LANES;
        memcpy(some, scores + t, count * sizeof *some);
        vec x = *(vec *)some * to_twice;
        ivec is_negative = x < 0;
        vec e = KERNEL(exponential)((vec)((is_negative & (ivec)x) | (~is_negative & (ivec)-x)));
        vec pressed = (1.0f - e) / (1.0f + e) * from;
        *(vec *)some = (vec)((is_negative & (ivec)-pressed) | (~is_negative & (ivec)pressed));
        memcpy(scores + t, some, count * sizeof *some);
    }
}

/* Scores [num] become weights of a softmax, as `soften` has it. */
INLINE float KERNEL(weigh)(const struct attention *a, float *scores, size_t num) {
    if (a->softcap > 0) KERNEL(press)(scores, num, a->scale, a->softcap);
    return KERNEL(soften)(scores, num, a->scale);
}

/* The first of ``num`` tokens that the last one sees. */
INLINE size_t KERNEL(first_seen)(const struct attention *a, size_t num) {
    return a->window > 0 && num > a->window ? num - a->window : 0;
}

/* One request's queries that share a KV head: ``scores`` [heads][most] is room to work in. */
INLINE void KERNEL(attend_to)(const struct attention *a, const float *queries, const int64_t *table, size_t num,
                              int kv_head, float *scores, size_t most, float *out, const int kv) {
    const size_t size = a->block_size, dim = a->head_dim, blocks = (num + size - 1) / size;
    const size_t token = token_bytes(kv, dim), row = size * token;
    const size_t begin = KERNEL(first_seen)(a, num), block_begin = begin / size * size;
    const char *keys = a->rows + kv_head * row, *values = keys + a->kv_heads * row;
    for (size_t first = block_begin, b = begin / size; first < num; first += size, b++) {
        const char *block = keys + table[b] * row, *next = kv_to_come(a, table, blocks, kv_head, b, row);
        size_t some = num - first < size ? num - first : size;
        for (size_t t = first < begin ? begin - first : 0; t < some; t++) {
            prefetch(next + t * token, token);
            KERNEL(score)(block + t * token, queries, dim, scores + first + t, most, a->heads, kv);
        }
    }
    float sums[MOST_HEADS];
    for (int h = 0; h < a->heads; h++) sums[h] = KERNEL(weigh)(a, scores + h * most + begin, num - begin);
    for (size_t i = 0; i < a->heads * dim; i++) out[i] = 0;
    for (size_t first = block_begin, b = begin / size; first < num; first += size, b++) {
        const size_t unseen = first < begin ? begin - first : 0, some = (num - first < size ? num - first : size) - unseen;
        const char *block = values + table[b] * row + unseen * token;
        prefetch(kv_to_come(a, table, blocks, kv_head, blocks + b, row), row);
        KERNEL(mix_block)(block, some, dim, scores + first + unseen, most, out, a->heads, kv);
    }
    for (int h = 0; h < a->heads; h++)
        for (size_t d = 0; d < dim; d++) out[h * dim + d] /= sums[h];
}

TARGET static void KERNEL(attend)(const struct attention *a, const float *queries, const int64_t *table, size_t num,
                                  int kv_head, float *scores, size_t most, float *out) {
    switch (a->kv) {
        case KV_FLOATS: KERNEL(attend_to)(a, queries, table, num, kv_head, scores, most, out, KV_FLOATS); break;
        case KV_HALVES: KERNEL(attend_to)(a, queries, table, num, kv_head, scores, most, out, KV_HALVES); break;
        default: KERNEL(attend_to)(a, queries, table, num, kv_head, scores, most, out, KV_BYTES); break;
    }
}

/* Where a token's head of keys is; values are kv_heads rows after it. */
INLINE const char *KERNEL(key_of)(const struct attention *a, const int64_t *table, size_t token, int kv_head) {
    const size_t size = a->block_size;
    return a->rows + ((table[token / size] + kv_head) * size + token % size) * token_bytes(a->kv, a->head_dim);
}

/* A register of a token's head, from ``d`` on, in floats. */
INLINE void KERNEL(widen_at)(const char *at, size_t dim, size_t d, int kv, float *out) {
    if (kv == KV_FLOATS) *(vec *)out = KERNEL(load)(at, d, KV_FLOATS);
    if (kv == KV_HALVES) *(vec *)out = KERNEL(load)(at, d, KV_HALVES);
    if (kv == KV_BYTES) *(vec *)out = KERNEL(load)(at, d, KV_BYTES) * KERNEL(scale_of)(at, dim, KV_BYTES);
}

/* Keys of ``num`` tokens as a panel [head_dim][TILE], zeros after the last. */
TARGET static void KERNEL(turn)(const struct attention *a, const int64_t *table, size_t first, size_t num, int kv_head,
                                float *panel) {
    const size_t dim = a->head_dim;
    for (size_t t = 0; t < TILE; t++) {
        const char *key = t < num ? KERNEL(key_of)(a, table, first + t, kv_head) : NULL;
        for (size_t d = 0; d < dim; d += LANES) {
            float some[LANES] = {0};
            if (key != NULL) KERNEL(widen_at)(key, dim, d, a->kv, some);
            for (int i = 0; i < LANES; i++) panel[(d + i) * TILE + t] = some[i];
        }
    }
}

/* Values of ``num`` tokens [num][head_dim] in floats. */
TARGET static void KERNEL(spread)(const struct attention *a, const int64_t *table, size_t first, size_t num,
                                  int kv_head, float *values) {
    const size_t dim = a->head_dim, to_values = a->kv_heads * a->block_size * token_bytes(a->kv, dim);
    for (size_t t = 0; t < num; t++)
        for (size_t d = 0; d < dim; d += LANES)
            KERNEL(widen_at)(KERNEL(key_of)(a, table, first + t, kv_head) + to_values, dim, d, a->kv, values + t * dim + d);
}

/* A token's head becomes what KV holds of it. Halves are rounded to the nearest, to the even one of two. */
TARGET static void KERNEL(store)(int kv, const float *from, size_t dim, char *to) {
    if (kv == KV_FLOATS) memcpy(to, from, dim * sizeof *from);
    if (kv == KV_HALVES)
        for (size_t d = 0; d < dim; d++) {
            uint32_t bits;
            memcpy(&bits, from + d, sizeof bits);
            bits = (bits & INT32_MAX) > 0x7f800000 ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
            ((uint16_t *)to)[d] = (uint16_t)(bits >> 16);
        }
    if (kv == KV_BYTES) {
        const float bias = 12582912.0f; /* 1.5 * 2**23: adding it rounds to a whole number */
        uint32_t largest = 0;           /* sizes of floats compare as their bits do */
        for (size_t d = 0; d < dim; d++) {
            uint32_t size;
            memcpy(&size, from + d, sizeof size);
            size &= INT32_MAX;
            largest = size > largest ? size : largest;
        }
        float most;
        memcpy(&most, &largest, sizeof most);
        const float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
        for (size_t d = 0; d < dim; d++) to[d] = (char)(int8_t)(int32_t)((from[d] * inverse + bias) - bias);
        memcpy(to + dim, &scale, sizeof scale);
    }
}

/* ``rows`` queries of one head, after ``before`` tokens: each sees the keys up to its own. ``panels``: of `turn`, tile
 * after tile; ``spread``: of `spread`, where KV is not in floats; ``scores`` [rows][most] is room to work in. */
TARGET static void KERNEL(attend_rows)(const struct attention *a, const float *queries, size_t stride,
                                       const int64_t *table, size_t before, int rows, int kv_head, const float *panels,
                                       const float *spread, float *scores, size_t most, float *out, size_t outs) {
    const size_t size = a->block_size, dim = a->head_dim, row = size * dim, seen = before + rows;
    const float *values = (const float *)a->rows + (a->kv_heads + kv_head) * row;
    const size_t begin = KERNEL(first_seen)(a, before + 1), block_begin = begin / size * size;
    for (size_t first = begin / TILE * TILE; first < seen; first += TILE)
        KERNEL(multiply_all)(panels + first * dim, TILE, (int)dim, queries, stride, scores + first, most, 0, rows, TILE);
    float sums[ROWS];
    for (int m = 0; m < rows; m++) {
        size_t own = before + m + 1, from = KERNEL(first_seen)(a, own);
        sums[m] = KERNEL(weigh)(a, scores + m * most + from, own - from);
        for (size_t t = block_begin; t < from; t++) scores[m * most + t] = 0;
        for (size_t t = own; t < seen; t++) scores[m * most + t] = 0;
    }
    for (size_t first = block_begin; first < seen; first += size) {
        int some = (int)(seen - first < size ? seen - first : size);
        const float *block = a->kv == KV_FLOATS ? values + table[first / size] * row : spread + first * dim;
        KERNEL(multiply_all)(block, dim, some, scores + first, most, out, outs,
                             first > block_begin, rows, (int)dim);
    }
    for (int m = 0; m < rows; m++)
        for (size_t d = 0; d < dim; d++) out[m * outs + d] /= sums[m];
}

#undef vec
#undef ivec
#undef INLINE
