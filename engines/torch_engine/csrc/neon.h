/* The products of rounded.h by NEON's products of signed bytes, for ARM's 64-bit processors. Before it is included:
 *
 *   DOT  1: by SDOT, four products and their sum in each 32 bits of a register; 0: by products of 16 bits, which all have
 *
 * Their results are those of rounded.h with AVX2, to the last bit: sums within a group are exact, and across groups they
 * are rounded in the same order.
 */

#if DOT
#define KERNEL(name) JOIN(name, neon_dot)
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#else
#define KERNEL(name) JOIN(name, neon)
#define TARGET
#endif
#define INLINE TARGET static inline __attribute__((always_inline))

/* Four inputs for each of the four outputs of a register. */
INLINE int8x16_t KERNEL(four)(const int8_t *codes) {
    int32_t four;
    memcpy(&four, codes, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Sums of the products of a group's codes, four outputs from ``word`` on, with each row's inputs. */
INLINE void KERNEL(group)(const int32_t *word, const int8_t *codes, size_t ins, int32x4_t *total, const int rows,
                          const struct form form) {
    const int words = WORDS(form);
    for (int m = 0; m < rows; m++) total[m] = vdupq_n_s32(0);
#if DOT
#pragma GCC unroll 8
    for (int j = 0; j < words; j++) {
        const int8x16_t packed = vreinterpretq_s8_s32(vld1q_s32(word + j * TILE));
        if (form.bits == 4) {
            const int8x16_t low = vandq_s8(packed, vdupq_n_s8(15));
            const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(packed), 4));
            for (int m = 0; m < rows; m++) {
                total[m] = vdotq_s32(total[m], low, KERNEL(four)(codes + m * ins + 8 * j));
                total[m] = vdotq_s32(total[m], high, KERNEL(four)(codes + m * ins + 8 * j + 4));
            }
        } else {
            for (int m = 0; m < rows; m++)
                total[m] = vdotq_s32(total[m], packed, KERNEL(four)(codes + m * ins + 4 * j));
        }
    }
#else
    int16x8_t left[FEW], right[FEW]; /* of the first two outputs and of the others */
    if (form.bits == 4) { /* 8 products of at most 15 * 127 each fit into 16 bits */
        for (int m = 0; m < rows; m++) left[m] = right[m] = vdupq_n_s16(0);
#pragma GCC unroll 8
        for (int j = 0; j < words; j++) {
            const int8x16_t packed = vreinterpretq_s8_s32(vld1q_s32(word + j * TILE));
            const int8x16_t low = vandq_s8(packed, vdupq_n_s8(15));
            const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(packed), 4));
            for (int m = 0; m < rows; m++) {
                const int8x16_t even = KERNEL(four)(codes + m * ins + 8 * j);
                const int8x16_t odd = KERNEL(four)(codes + m * ins + 8 * j + 4);
                left[m] = vmlal_s8(left[m], vget_low_s8(low), vget_low_s8(even));
                right[m] = vmlal_high_s8(right[m], low, even);
                left[m] = vmlal_s8(left[m], vget_low_s8(high), vget_low_s8(odd));
                right[m] = vmlal_high_s8(right[m], high, odd);
            }
        }
        for (int m = 0; m < rows; m++) total[m] = vpaddq_s32(vpaddlq_s16(left[m]), vpaddlq_s16(right[m]));
    } else { /* 2 of at most 128 * 127 do */
        int32x4_t first[FEW], last[FEW];
        for (int m = 0; m < rows; m++) first[m] = last[m] = vdupq_n_s32(0);
#pragma GCC unroll 4
        for (int j = 0; j < words; j += 2) {
            const int8x16_t one = vreinterpretq_s8_s32(vld1q_s32(word + j * TILE));
            const int8x16_t two = vreinterpretq_s8_s32(vld1q_s32(word + (j + 1) * TILE));
            for (int m = 0; m < rows; m++) {
                const int8x16_t by_one = KERNEL(four)(codes + m * ins + 4 * j);
                const int8x16_t by_two = KERNEL(four)(codes + m * ins + 4 * j + 4);
                left[m] = vmull_s8(vget_low_s8(one), vget_low_s8(by_one));
                right[m] = vmull_high_s8(one, by_one);
                left[m] = vmlal_s8(left[m], vget_low_s8(two), vget_low_s8(by_two));
                right[m] = vmlal_high_s8(right[m], two, by_two);
                first[m] = vpadalq_s16(first[m], left[m]);
                last[m] = vpadalq_s16(last[m], right[m]);
            }
        }
        for (int m = 0; m < rows; m++) total[m] = vpaddq_s32(first[m], last[m]);
    }
#endif
}

/* ``rows`` rows of ``vectors`` times 4 columns from ``column`` on; ``asks``: memory for groups that come later. */
INLINE void KERNEL(block)(const char *tile, const struct rounded *x, size_t ins, float *out, size_t outs, int column,
                          int adds, int asks, const int rows, const int vectors, const struct form form) {
    const int groups = (int)ins / form.group;
    const size_t group_bytes = GROUP_BYTES(form), num_scales = ins / ROUNDED;
    float32x4_t sum[FEW][WIDE];
    out += column;
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++)
            sum[m][v] = adds ? vld1q_f32(out + m * outs + v * 4) : vdupq_n_f32(0);
    for (int g = 0; g < groups; g++) {
        const char *group = tile + g * group_bytes;
        if (asks) prefetch(group + AHEAD * group_bytes, group_bytes);
        const float *scales = (const float *)group + column;
        const int32_t *word = (const int32_t *)(group + HEAD_BYTES(form)) + column;
        const size_t of = (size_t)g * form.group / ROUNDED;
        for (int v = 0; v < vectors; v++) {
            int32x4_t total[FEW];
            KERNEL(group)(word + v * 4, x->codes + (size_t)g * form.group, ins, total, rows, form);
            for (int m = 0; m < rows; m++) {
                const float32x4_t scale = vmulq_n_f32(vld1q_f32(scales + v * 4), x->scales[m * num_scales + of]);
                sum[m][v] = vfmaq_f32(sum[m][v], vcvtq_f32_s32(total[m]), scale);
                if (form.minima)
                    sum[m][v] = vfmaq_n_f32(sum[m][v], vld1q_f32(scales + TILE + v * 4), x->sums[m * num_scales + of]);
            }
        }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < vectors; v++) vst1q_f32(out + m * outs + v * 4, sum[m][v]);
}

#define BLOCK(rows)                                                                                             \
    case rows:                                                                                                  \
        for (int column = 0; column < TILE; column += 4 * WIDE)                                                 \
            KERNEL(block)(tile, &at, ins, out, outs, column, adds, row == 0 && column == 0, rows, WIDE, form);  \
        break;
#define DOTS(number)                                                                                            \
    TARGET static void KERNEL(dots##number)(const char *tile, const struct rounded *x, size_t ins, float *out,  \
                                            size_t outs, int rows, int adds) {                                  \
        const struct form form = FORM_##number;                                                                 \
        struct rounded at = *x;                                                                                 \
        for (int row = 0, some; row < rows; row += some, out += some * outs) {                                  \
            some = rows - row < FEW ? rows - row : FEW;                                                         \
            switch (some) {                                                                                     \
                BLOCK(4)                                                                                        \
                BLOCK(3)                                                                                        \
                BLOCK(2)                                                                                        \
                BLOCK(1)                                                                                        \
            }                                                                                                   \
            at.codes += some * ins;                                                                             \
            at.scales += some * (ins / ROUNDED);                                                                \
            at.sums += some * (ins / ROUNDED);                                                                  \
        }                                                                                                       \
    }
DOTS(0)
DOTS(1)
DOTS(2)
DOTS(3)
#undef DOTS
#undef BLOCK
#undef KERNEL
#undef TARGET
#undef INLINE
