/* What is computed of single rows beside products and attention: norms, rotations and gates. Included after attention.h
 * for each instruction set, and as that needs KERNEL, TARGET and LANES. A row's result does not depend on other rows.
 */

#define vec KERNEL(vec)
#define ivec KERNEL(ivec)

/* ``x / sqrt(mean(x ** 2) + epsilon) * weight`` of ``num`` floats. */
TARGET static void KERNEL(normalise)(const float *x, const float *weight, float epsilon, float *out, size_t num) {
    vec squares = {0};
    for (size_t i = 0; i < num; i += LANES) squares += *(vec *)(x + i) * *(vec *)(x + i);
    const float scale = 1.0f / __builtin_sqrtf(KERNEL(total)(squares) / (float)num + epsilon);
    for (size_t i = 0; i < num; i += LANES) *(vec *)(out + i) = *(vec *)(x + i) * scale * *(vec *)(weight + i);
}

/* The first ``dims`` of each of ``heads`` heads, pairs side by side, times ``angles`` [dims / 2] as complex numbers. */
TARGET static void KERNEL(rotate)(float *x, size_t heads, size_t head_dim, size_t dims, const float *angles) {
    for (size_t head = 0; head < heads; head++, x += head_dim)
        for (size_t i = 0; i < dims; i += 2) {
            const float real = x[i] * angles[i] - x[i + 1] * angles[i + 1];
            x[i + 1] = x[i] * angles[i + 1] + x[i + 1] * angles[i];
            x[i] = real;
        }
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
