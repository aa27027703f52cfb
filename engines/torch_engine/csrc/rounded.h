/* Products of codes with inputs that are rounded to 8 bits themselves: whole numbers within a group, floats across groups.
 *
 * Included after attention.h for each instruction set, and as that needs KERNEL, TARGET and LANES. BYTES: AVX2_BYTES with
 * AVX2's 256-bit products of bytes, PLAIN_BYTES without.
 */

typedef float KERNEL(vec) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t KERNEL(ivec) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t KERNEL(bytes) __attribute__((vector_size(ROUNDED / 2), aligned(1)));
#define vec KERNEL(vec)
#define ivec KERNEL(ivec)
#define INLINE TARGET static inline __attribute__((always_inline))

/* Round a row of inputs, group by group: the largest of a group becomes 127 or -127. For codes of 4 bits the even ones of
 * each eight inputs come first, as low and high nibbles of bytes are taken. */
TARGET static void KERNEL(round_row)(const float *x, size_t ins, const struct form form, int8_t *codes, float *scales,
                                     float *sums, int32_t *offsets) {
    for (size_t g = 0; g < ins / ROUNDED; g++, x += ROUNDED, codes += ROUNDED) {
        const float bias = 12582912.0f; /* 1.5 * 2**23: adding it rounds to a whole number */
        int32_t bits[ROUNDED], largest = 0; /* sizes of floats compare as their bits do */
        memcpy(bits, x, sizeof bits);
        for (int i = 0; i < ROUNDED; i++) {
            const int32_t size = bits[i] & INT32_MAX;
            largest = size > largest ? size : largest;
        }
        float most;
        memcpy(&most, &largest, sizeof most);
        const float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
        int32_t sum[2];
        for (int half = 0; half < 2; half++) {
            int32_t whole[ROUNDED / 2];
            ivec all = {0};
            for (int i = 0; i < ROUNDED / 2; i += LANES) {
                const vec rounded = (*(vec *)(x + half * ROUNDED / 2 + i) * inverse + bias) - bias;
                *(ivec *)(whole + i) = __builtin_convertvector(rounded, ivec);
                all += *(ivec *)(whole + i);
            }
            sum[half] = KERNEL(count)(all);
            KERNEL(bytes) narrow;
            for (int i = 0; i < ROUNDED / 2; i++) narrow[i] = (int8_t)whole[i];
            if (form.bits == 4)
                narrow = __builtin_shufflevector(narrow, narrow, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
            *(KERNEL(bytes) *)(codes + half * ROUNDED / 2) = narrow;
        }
        scales[g] = scale;
        sums[g] = scale * (float)(sum[0] + sum[1]);
        if (form.group == ROUNDED) {
            *offsets++ = -128 * (sum[0] + sum[1]);
        } else {
            *offsets++ = -128 * sum[0];
            *offsets++ = -128 * sum[1];
        }
    }
}

#if BYTES == AVX2_BYTES

/* Up to FEW rows of a strip of ``vectors`` times 8 columns. */
INLINE void KERNEL(dots)(const char *tile, const struct rounded *x, size_t ins, float *out, size_t outs, int strip,
                         int adds, const int rows, const int vectors, const struct form form) {
    const int words = WORDS(form), groups = (int)ins / form.group, column = strip * vectors * 8;
    const size_t group_bytes = GROUP_BYTES(form), num_scales = ins / ROUNDED;
    const __m256i fifteen = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256 sum[FEW][WIDE];
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++)
            sum[m][v] = adds ? _mm256_loadu_ps(out + m * outs + column + v * 8) : _mm256_setzero_ps();
    for (int g = 0; g < groups; g++) {
        const char *group = tile + g * group_bytes;
        if (strip == 0) prefetch(group + AHEAD * group_bytes, group_bytes);
        const float *scales = (const float *)group + column;
        const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form)) + column;
        const int8_t *codes = x->codes + (size_t)g * form.group;
        __m256i total[FEW][WIDE];
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < vectors; v++) total[m][v] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = 0; j < words; j++)
            for (int v = 0; v < vectors; v++) {
                const __m256i packed = _mm256_loadu_si256((const __m256i *)(word + j * TILE + v * 8));
                if (form.bits == 4) { /* 16 products of at most 15 * 127 each fit into 16 bits */
                    const __m256i low = _mm256_and_si256(packed, fifteen);
                    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), fifteen);
                    for (int m = 0; m < rows; m++) {
                        int32_t even, odd;
                        memcpy(&even, codes + m * ins + 8 * j, 4);
                        memcpy(&odd, codes + m * ins + 8 * j + 4, 4);
                        total[m][v] = _mm256_add_epi16(total[m][v], _mm256_maddubs_epi16(low, _mm256_set1_epi32(even)));
                        total[m][v] = _mm256_add_epi16(total[m][v], _mm256_maddubs_epi16(high, _mm256_set1_epi32(odd)));
                    }
                } else { /* the sign of a code goes to its input: one factor is to be without */
                    const __m256i size = _mm256_abs_epi8(packed);
                    for (int m = 0; m < rows; m++) {
                        int32_t four;
                        memcpy(&four, codes + m * ins + 4 * j, 4);
                        const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(_mm256_set1_epi32(four), packed));
                        total[m][v] = _mm256_add_epi32(total[m][v], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        const size_t of = (size_t)g * form.group / ROUNDED;
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < vectors; v++) {
                const __m256i whole = form.bits == 4 ? _mm256_madd_epi16(total[m][v], ones) : total[m][v];
                const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + v * 8), _mm256_set1_ps(x->scales[m * num_scales + of]));
                sum[m][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), scale, sum[m][v]);
                if (form.minima)
                    sum[m][v] = _mm256_fmadd_ps(_mm256_loadu_ps(scales + TILE + v * 8),
                                                _mm256_set1_ps(x->sums[m * num_scales + of]), sum[m][v]);
            }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++) _mm256_storeu_ps(out + m * outs + column + v * 8, sum[m][v]);
}
#define DOT_LANES 8

#else

INLINE void KERNEL(dots)(const char *tile, const struct rounded *x, size_t ins, float *out, size_t outs, int strip,
                         int adds, const int rows, const int vectors, const struct form form) {
    const int words = WORDS(form), in_word = 32 / form.bits, groups = (int)ins / form.group;
    const int column = strip * vectors * LANES;
    const size_t group_bytes = GROUP_BYTES(form), num_scales = ins / ROUNDED;
    for (int v = 0; v < vectors; v++) {
        vec sum[FEW];
        for (int m = 0; m < rows; m++) sum[m] = adds ? *(vec *)(out + m * outs + column + v * LANES) : (vec){0};
        for (int g = 0; g < groups; g++) {
            const char *group = tile + g * group_bytes;
            const float *scales = (const float *)group + column + v * LANES;
            const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form)) + column + v * LANES;
            ivec total[FEW] = {{0}};
            for (int j = 0; j < words; j++) {
                const ivec packed = *(ivec *)(word + j * TILE);
                for (int i = 0; i < in_word; i++) {
                    const ivec code = form.bits == 4 ? (packed >> (4 * i)) & 15 : (packed << (24 - 8 * i)) >> 24;
                    const int at = form.bits == 4 ? i % 2 * 4 + i / 2 : i;
                    for (int m = 0; m < rows; m++)
                        total[m] += code * (int32_t)x->codes[m * ins + (size_t)g * form.group + j * in_word + at];
                }
            }
            const size_t of = (size_t)g * form.group / ROUNDED;
            for (int m = 0; m < rows; m++) {
                const vec scale = *(vec *)scales * x->scales[m * num_scales + of];
                sum[m] += __builtin_convertvector(total[m], vec) * scale;
                if (form.minima) sum[m] += *(vec *)(scales + TILE) * x->sums[m * num_scales + of];
            }
        }
        for (int m = 0; m < rows; m++) *(vec *)(out + m * outs + column + v * LANES) = sum[m];
    }
}
#define DOT_LANES LANES

#endif

#define DOTS(number)                                                                                                   \
    TARGET static void KERNEL(dots##number)(const char *tile, const struct rounded *x, size_t ins, float *out,         \
                                            size_t outs, int rows, int adds) {                                         \
        const struct form form = FORM_##number;                                                                        \
        struct rounded at = *x;                                                                                        \
        for (int row = 0, some; row < rows; row += some, out += some * outs) {                                         \
            some = rows - row < FEW ? rows - row : FEW;                                                                \
            if (some == 1)                                                                                             \
                for (int strip = 0; strip < TILE / DOT_LANES / WIDE; strip++)                                          \
                    KERNEL(dots)(tile, &at, ins, out, outs, strip, adds, 1, WIDE, form);                               \
            else                                                                                                       \
                for (int strip = 0; strip < TILE / DOT_LANES / 2; strip++) switch (some) {                             \
                        case 2: KERNEL(dots)(tile, &at, ins, out, outs, strip, adds, 2, 2, form); break;               \
                        case 3: KERNEL(dots)(tile, &at, ins, out, outs, strip, adds, 3, 2, form); break;               \
                        case 4: KERNEL(dots)(tile, &at, ins, out, outs, strip, adds, 4, 2, form); break;               \
                    }                                                                                                  \
            at.codes += some * ins;                                                                                    \
            at.scales += some * (ins / ROUNDED);                                                                       \
            at.sums += some * (ins / ROUNDED);                                                                         \
        }                                                                                                              \
    }
DOTS(0)
DOTS(1)
DOTS(2)
DOTS(3)
#undef DOTS
#undef DOT_LANES
#undef vec
#undef ivec
#undef INLINE
