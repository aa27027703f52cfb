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
 *   16 bits: half i of word j is the weight of input 2 j + i itself, the upper half of its float; there are no scales
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

/* Registers of weights of one input: code number ``i`` of each word. */
INLINE vec KERNEL(weight)(ivec word, int i, vec scale, vec minimum, const struct form form) {
    if (form.bits == 16) return (vec)(i == 0 ? word << 16 : word & ~0xffff);
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
            scale[v] = form.bits < 16 ? *(vec *)(scales + v * LANES) : (vec){0};
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
        vec scale = form.bits < 16 ? *(vec *)(scales + c) : (vec){0};
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
PRODUCT(4)
#undef PRODUCT

#undef vec
#undef ivec
#undef STRIP
#undef INLINE
