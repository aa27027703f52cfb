/* What the kernels compute, written once and compiled for each instruction set. Before it is included:
 *
 *   KERNEL(name)  the name of something of this instruction set
 *   TARGET        attribute of each function
 *   LANES         floats in a register
 *   VECTORS       registers of a row that a strip of columns is wide
 *
 * Weights are codes (`weight = scale * code + minimum` for the 32 or 16 inputs of a group of one output, as in GGUF's
 * blocks), packed in tiles of 64 outputs, group after group:
 *
 *   scales [64], minima [64] if the form has them (floats), words [group * bits / 32][64]
 *   4 bits: nibble i of word j is the code of input 8 j + i
 *   8 bits: byte i of word j is the code, signed, of input 4 j + i
 *
 * ``form`` is a constant wherever it is inlined, and so is what follows from it.
 *
 * A code becomes the same float that de-quantising gives (one rounding), and a row's sums run over its inputs in order,
 * however many rows there are: a product does not depend on what else is in the batch.
 */

typedef float KERNEL(vec) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t KERNEL(ivec) __attribute__((vector_size(4 * LANES), aligned(4)));
#define vec KERNEL(vec)
#define ivec KERNEL(ivec)
#define STRIP (LANES * VECTORS)
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE vec KERNEL(splat)(float x) {
    return x - (vec){0};
}

/* Registers of weights of one input: code number ``i`` of each word. */
INLINE vec KERNEL(weight)(ivec word, int i, vec scale, vec minimum, const struct form form) {
    ivec code = form.bits == 4 ? (word >> (4 * i)) & 15 : (word << (24 - 8 * i)) >> 24;
    vec scaled = __builtin_convertvector(code, vec) * scale;
    return form.minima ? scaled + minimum : scaled;
}

/* Up to FEW rows: weights go from words to products in registers. */
INLINE void KERNEL(few)(const char *tile, const float *x, size_t ins, float *out, size_t outs, int strip, int adds,
                        const int rows, const struct form form) {
    const int words = WORDS(form), codes = 32 / form.bits, groups = (int)ins / form.group, column = strip * STRIP;
    const size_t group_bytes = GROUP_BYTES(form);
    vec sum[FEW][VECTORS];
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = adds ? *(vec *)(out + m * outs + column + v * LANES) : (vec){0};
    for (int g = 0; g < groups; g++) {
        const char *group = tile + g * group_bytes;
        if (strip == 0) prefetch(group + AHEAD * group_bytes, group_bytes);
        const float *scales = (const float *)group + column;
        const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form)) + column;
        vec scale[VECTORS], minimum[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            scale[v] = *(vec *)(scales + v * LANES);
            minimum[v] = form.minima ? *(vec *)(scales + TILE + v * LANES) : (vec){0};
        }
        for (int j = 0; j < words; j++, word += TILE) {
            ivec packed[VECTORS];
            for (int v = 0; v < VECTORS; v++) packed[v] = *(ivec *)(word + v * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < codes; i++)
                for (int v = 0; v < VECTORS; v++) {
                    vec weight = KERNEL(weight)(packed[v], i, scale[v], minimum[v], form);
                    for (int m = 0; m < rows; m++) sum[m][v] += weight * x[m * ins + g * form.group + j * codes + i];
                }
        }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < VECTORS; v++) *(vec *)(out + m * outs + column + v * LANES) = sum[m][v];
}

/* A group's weights as floats, ``panel`` [inputs][64]. */
INLINE void KERNEL(unpack)(const char *group, float *panel, const struct form form) {
    const int words = WORDS(form), codes = 32 / form.bits;
    const float *scales = (const float *)group;
    const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form));
    for (int c = 0; c < TILE; c += LANES) {
        vec scale = *(vec *)(scales + c);
        vec minimum = form.minima ? *(vec *)(scales + TILE + c) : (vec){0};
        for (int j = 0; j < words; j++) {
            ivec packed = *(ivec *)(word + j * TILE + c);
#pragma GCC unroll 8
            for (int i = 0; i < codes; i++)
                *(vec *)(panel + (j * codes + i) * TILE + c) = KERNEL(weight)(packed, i, scale, minimum, form);
        }
    }
}

/* Add the products of ``depth`` inputs, whose weights are ``width`` apart, to ``rows`` rows of a strip. */
INLINE void KERNEL(multiply)(const float *panel, size_t width, int depth, const float *x, size_t ins, float *out,
                             size_t outs, int adds, const int rows) {
    vec sum[MANY][VECTORS];
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = adds ? *(vec *)(out + m * outs + v * LANES) : (vec){0};
    for (int k = 0; k < depth; k++) {
        vec weight[VECTORS];
        for (int v = 0; v < VECTORS; v++) weight[v] = *(vec *)(panel + k * width + v * LANES);
        for (int m = 0; m < rows; m++) {
            float input = x[m * ins + k];
            for (int v = 0; v < VECTORS; v++) sum[m][v] += weight[v] * input;
        }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < VECTORS; v++) *(vec *)(out + m * outs + v * LANES) = sum[m][v];
}

/* The same for any number of rows and of strips, `columns` in all. */
TARGET static void KERNEL(multiply_all)(const float *panel, size_t width, int depth, const float *x, size_t ins,
                                        float *out, size_t outs, int adds, int rows, int columns) {
    const int pieces = (rows + MANY - 1) / MANY;
    for (int column = 0; column < columns; column += STRIP)
        for (int piece = 0, m = 0, size; piece < pieces; piece++, m += size) {
            size = (rows - m) / (pieces - piece);
            const float *from = x + m * ins;
            float *to = out + m * outs + column;
#define MULTIPLY(rows) \
    case rows: KERNEL(multiply)(panel + column, width, depth, from, ins, to, outs, adds, rows); break
            switch (size) {
                MULTIPLY(6);
                MULTIPLY(5);
                MULTIPLY(4);
                MULTIPLY(3);
                MULTIPLY(2);
                MULTIPLY(1);
            }
#undef MULTIPLY
        }
}

/* Many rows: weights are unpacked once for all of them, a panel of PANEL inputs that stays in the first cache. */
INLINE void KERNEL(many)(const char *tile, const float *x, size_t ins, float *out, size_t outs, int rows, int adds,
                         const struct form form) {
    float panel[PANEL * TILE] __attribute__((aligned(CACHE_LINE)));
    const size_t group_bytes = GROUP_BYTES(form);
    for (size_t first = 0; first < ins; first += PANEL) {
        int depth = (int)(ins - first < PANEL ? ins - first : PANEL);
        for (int i = 0; i < depth; i += form.group) {
            const char *group = tile + (first + i) / form.group * group_bytes;
            KERNEL(unpack)(group, panel + i * TILE, form);
            prefetch(group + AHEAD * group_bytes, group_bytes);
        }
        KERNEL(multiply_all)(panel, TILE, depth, x + first, ins, out, outs, adds || first > 0, rows, TILE);
    }
}

#define PRODUCT(number)                                                                                            \
    TARGET static void KERNEL(product##number)(const char *tile, const float *x, size_t ins, float *out, size_t outs, \
                                               int rows, int adds) {                                               \
        const struct form form = FORM_##number;                                                                    \
        if (rows > FEW) {                                                                                          \
            KERNEL(many)(tile, x, ins, out, outs, rows, adds, form);                                               \
            return;                                                                                                \
        }                                                                                                          \
        for (int strip = 0; strip < TILE / STRIP; strip++) switch (rows) {                                         \
                case 1: KERNEL(few)(tile, x, ins, out, outs, strip, adds, 1, form); break;                         \
                case 2: KERNEL(few)(tile, x, ins, out, outs, strip, adds, 2, form); break;                         \
                case 3: KERNEL(few)(tile, x, ins, out, outs, strip, adds, 3, form); break;                         \
                case 4: KERNEL(few)(tile, x, ins, out, outs, strip, adds, 4, form); break;                         \
            }                                                                                                      \
    }
PRODUCT(0)
PRODUCT(1)
PRODUCT(2)
PRODUCT(3)
#undef PRODUCT

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

/* Scores [heads][most] of a token's key, for ``heads`` query heads that share it. */
INLINE void KERNEL(score)(const float *key, const float *queries, size_t dim, float *scores, size_t most, int heads) {
    for (int h = 0; h < heads; h++) {
        vec sum = *(vec *)key * *(vec *)(queries + h * dim);
        for (size_t d = LANES; d < dim; d += LANES) sum += *(vec *)(key + d) * *(vec *)(queries + h * dim + d);
        scores[h * most] = KERNEL(total)(sum);
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

/* Weighted sums of values [tokens][dim] at ``columns`` registers of ``heads`` heads: added to sums [heads][dim]. */
INLINE void KERNEL(mix)(const float *values, size_t num, size_t dim, const float *weights, size_t most, float *sums,
                        const int heads, const int columns) {
    vec sum[4][4];
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < columns; c++) sum[h][c] = *(vec *)(sums + h * dim + c * LANES);
    for (size_t t = 0; t < num; t++)
        for (int c = 0; c < columns; c++) {
            vec value = *(vec *)(values + t * dim + c * LANES);
            for (int h = 0; h < heads; h++) sum[h][c] += value * weights[h * most + t];
        }
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < columns; c++) *(vec *)(sums + h * dim + c * LANES) = sum[h][c];
}

#define MIX(columns)                                                                                              \
    switch (some) {                                                                                               \
        case 4: KERNEL(mix)(values + d, num, dim, weights, most, sums + d, 4, columns); break;                    \
        case 3: KERNEL(mix)(values + d, num, dim, weights, most, sums + d, 3, columns); break;                    \
        case 2: KERNEL(mix)(values + d, num, dim, weights, most, sums + d, 2, columns); break;                    \
        default: KERNEL(mix)(values + d, num, dim, weights, most, sums + d, 1, columns); break;                   \
    }

TARGET static void KERNEL(mix_block)(const float *values, size_t num, size_t dim, const float *weights, size_t most,
                                     float *sums, int heads) {
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
TARGET static void KERNEL(attend)(const struct attention *a, const float *queries, const int64_t *table, size_t num,
                                  int kv_head, float *scores, size_t most, float *out) {
    const size_t size = a->block_size, dim = a->head_dim, row = size * dim, blocks = (num + size - 1) / size;
    const size_t begin = KERNEL(first_seen)(a, num), block_begin = begin / size * size;
    const float *keys = a->rows + kv_head * row, *values = keys + a->kv_heads * row;
    for (size_t first = block_begin, b = begin / size; first < num; first += size, b++) {
        const float *block = keys + table[b] * row, *next = kv_to_come(a, table, blocks, kv_head, b);
        size_t some = num - first < size ? num - first : size;
        for (size_t t = first < begin ? begin - first : 0; t < some; t++) {
            prefetch((const char *)(next + t * dim), 4 * dim);
            KERNEL(score)(block + t * dim, queries, dim, scores + first + t, most, a->heads);
        }
    }
    float sums[MOST_HEADS];
    for (int h = 0; h < a->heads; h++) sums[h] = KERNEL(weigh)(a, scores + h * most + begin, num - begin);
    for (size_t i = 0; i < a->heads * dim; i++) out[i] = 0;
    for (size_t first = block_begin, b = begin / size; first < num; first += size, b++) {
        const size_t unseen = first < begin ? begin - first : 0, some = (num - first < size ? num - first : size) - unseen;
        const float *block = values + table[b] * row + unseen * dim;
        prefetch((const char *)kv_to_come(a, table, blocks, kv_head, blocks + b), 4 * row);
        KERNEL(mix_block)(block, some, dim, scores + first + unseen, most, out, a->heads);
    }
    for (int h = 0; h < a->heads; h++)
        for (size_t d = 0; d < dim; d++) out[h * dim + d] /= sums[h];
}

/* Keys of ``num`` tokens as a panel [head_dim][TILE], zeros after the last. */
TARGET static void KERNEL(turn)(const struct attention *a, const int64_t *table, size_t first, size_t num, int kv_head,
                                float *panel) {
    const size_t size = a->block_size, dim = a->head_dim, row = size * dim;
    const float *keys = a->rows + kv_head * row;
    for (size_t t = 0; t < TILE; t++) {
        size_t token = first + t;
        const float *key = t < num ? keys + table[token / size] * row + token % size * dim : NULL;
        for (size_t d = 0; d < dim; d++) panel[d * TILE + t] = key == NULL ? 0 : key[d];
    }
}

/* ``rows`` queries of one head, after ``before`` tokens: each sees the keys up to its own. ``panels``: of `turn`, tile
 * after tile; ``scores`` [rows][most] is room to work in. */
TARGET static void KERNEL(attend_rows)(const struct attention *a, const float *queries, size_t stride,
                                       const int64_t *table, size_t before, int rows, int kv_head, const float *panels,
                                       float *scores, size_t most, float *out, size_t outs) {
    const size_t size = a->block_size, dim = a->head_dim, row = size * dim, seen = before + rows;
    const float *values = a->rows + (a->kv_heads + kv_head) * row;
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
        KERNEL(multiply_all)(values + table[first / size] * row, dim, some, scores + first, most, out, outs,
                             first > block_begin, rows, (int)dim);
    }
    for (int m = 0; m < rows; m++)
        for (size_t d = 0; d < dim; d++) out[m * outs + d] /= sums[m];
}

/* ``x * sigmoid(x) * y`` of ``num`` floats. */
TARGET static void KERNEL(gate)(const float *x, const float *y, float *out, size_t num) {
    for (size_t i = 0; i < num; i += LANES) {
        vec gate = *(vec *)(x + i);
        ivec is_negative = gate < 0;
        vec e = KERNEL(exponential)((vec)((is_negative & (ivec)gate) | (~is_negative & (ivec)-gate)));
        vec numerator = (vec)((is_negative & (ivec)e) | (~is_negative & (ivec)KERNEL(splat)(1.0f)));
        *(vec *)(out + i) = gate * numerator / (1.0f + e) * *(vec *)(y + i);
    }
}

#undef vec
#undef ivec
#undef STRIP
#undef INLINE
