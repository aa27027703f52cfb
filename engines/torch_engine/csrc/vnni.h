/* The products of rounded.h by AVX-512's VNNI: four products of bytes, and their sum, in each 32 bits of a register.
 *
 * Their results are those of rounded.h with AVX2, to the last bit: sums within a group are exact, and across groups they
 * are rounded in the same order. One factor is without a sign. Codes of 4 bits have none; signed ones get 128 added, and
 * sums begin with what that adds, taken away (`rounded.offsets`).
 */

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))

/* Up to MANY rows of ``vectors`` times 16 columns from ``column`` on; ``asks``: memory for groups that come later. */
INLINE void vnni_block(const char *tile, const struct rounded *x, size_t ins, float *out, size_t outs, int column,
                       int adds, int asks, const int rows, const int vectors, const struct form form) {
    const int in_word = 32 / form.bits, groups = (int)ins / form.group;
    const size_t group_bytes = GROUP_BYTES(form), num_scales = ins / ROUNDED;
    const __m512i fifteen = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(-128);
    __m512 sum[MANY][WIDE];
    out += column;
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++)
            sum[m][v] = adds ? _mm512_loadu_ps(out + m * outs + v * 16) : _mm512_setzero_ps();
    for (int g = 0; g < groups; g++) {
        const char *group = tile + g * group_bytes;
        if (asks) prefetch(group + AHEAD * group_bytes, group_bytes);
        const float *scales = (const float *)group + column;
        const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form)) + column;
        const int8_t *codes = x->codes + (size_t)g * form.group;
        __m512i total[MANY][WIDE];
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < vectors; v++)
                total[m][v] = form.bits == 4 ? _mm512_setzero_si512() : _mm512_set1_epi32(x->offsets[m * groups + g]);
#pragma GCC unroll 8
        for (int i = 0; i < form.group; i += 4) { /* the inputs of a byte of each word, or of a nibble of each byte */
            __m512i code[WIDE];
            for (int v = 0; v < vectors; v++) {
                const __m512i packed = _mm512_loadu_si512(word + i / in_word * TILE + v * 16);
                code[v] = form.bits == 8     ? _mm512_xor_si512(packed, sign)
                          : i % in_word == 0 ? _mm512_and_si512(packed, fifteen)
                                             : _mm512_and_si512(_mm512_srli_epi16(packed, 4), fifteen);
            }
            for (int m = 0; m < rows; m++) {
                int32_t four;
                memcpy(&four, codes + m * ins + i, sizeof four);
                for (int v = 0; v < vectors; v++)
                    total[m][v] = _mm512_dpbusd_epi32(total[m][v], code[v], _mm512_set1_epi32(four));
            }
        }
        const size_t of = (size_t)g * form.group / ROUNDED;
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < vectors; v++) {
                const __m512 scale =
                    _mm512_mul_ps(_mm512_loadu_ps(scales + v * 16), _mm512_set1_ps(x->scales[m * num_scales + of]));
                sum[m][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[m][v]), scale, sum[m][v]);
                if (form.minima)
                    sum[m][v] = _mm512_fmadd_ps(_mm512_loadu_ps(scales + TILE + v * 16),
                                                _mm512_set1_ps(x->sums[m * num_scales + of]), sum[m][v]);
            }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(out + m * outs + v * 16, sum[m][v]);
}

#define BLOCK(rows, vectors)                                                                                           \
    case rows:                                                                                                         \
        for (int column = 0; column < TILE; column += 16 * vectors)                                                    \
            vnni_block(tile, &at, ins, out, outs, column, adds, row == 0 && column == 0, rows, vectors, form);         \
        break;
#define DOTS(number)                                                                                                   \
    TARGET static void dots##number##_avx512_vnni(const char *tile, const struct rounded *x, size_t ins, float *out,   \
                                                  size_t outs, int rows, int adds) {                                   \
        const struct form form = FORM_##number;                                                                        \
        const int pieces = (rows + MANY - 1) / MANY;                                                                   \
        struct rounded at = *x;                                                                                        \
        for (int piece = 0, row = 0, some; piece < pieces; piece++, row += some, out += some * outs) {                 \
            some = (rows - row) / (pieces - piece);                                                                    \
            switch (some) {                                                                                            \
                BLOCK(6, 2)                                                                                            \
                BLOCK(5, 2)                                                                                            \
                BLOCK(4, 2)                                                                                            \
                BLOCK(3, 2)                                                                                            \
                BLOCK(2, 4)                                                                                            \
                BLOCK(1, 4)                                                                                            \
            }                                                                                                          \
            at.codes += some * ins;                                                                                    \
            at.scales += some * (ins / ROUNDED);                                                                       \
            at.sums += some * (ins / ROUNDED);                                                                         \
            at.offsets += some * (ins / form.group);                                                                   \
        }                                                                                                              \
    }
DOTS(0)
DOTS(1)
DOTS(2)
DOTS(3)
#undef DOTS
#undef BLOCK
#undef TARGET
#undef INLINE
