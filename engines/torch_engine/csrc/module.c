/* Kernels for processors: products with weights that stay in blocks of codes, and attention of decodes in place.
 *
 * Addresses come as integers; whoever calls answers for them (engines/torch_engine/layers/cpu_kernels.py). Nothing here knows
 * Python but for the functions at the end, and the interpreter's lock is released while they compute.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TILE 64   /* outputs */
#define FEW 4     /* rows that are computed without unpacking weights to memory */
#define MANY 6    /* rows at a time else */
#define PANEL 64  /* inputs whose weights are unpacked at a time */
#define AHEAD 16  /* groups that are asked of memory before they are needed, */
#define KV_AHEAD 2 /* and blocks of KV */
#define ROWS 96   /* of inputs that stay in the second cache while all tiles are gone through */
#define CACHE_LINE 64
#define WIDE 4    /* registers of outputs, at most, that products with rounded inputs are computed for at a time */
#define INTERFACE 2 /* what functions take: `cpu_kernels.INTERFACE` is that of the Python around */
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
static const struct form forms[] = {FORM_0, FORM_1, FORM_2, FORM_3};
#define NUM_FORMS ((int)(sizeof forms / sizeof *forms))
#define WORDS(form) ((form).group * (form).bits / 32)
#define HEAD_BYTES(form) (TILE * 4 * (1 + (form).minima))
#define GROUP_BYTES(form) ((size_t)(HEAD_BYTES(form) + WORDS(form) * TILE * 4))

/* Where a layer's KV is: ``rows`` [*][block_size][head_dim], a row a head of a block, values kv_heads rows after keys. */
struct attention {
    const float *rows;
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

/* Ask memory for what comes later: into the second cache, which has more requests under way than the first. */
static inline __attribute__((always_inline)) void prefetch(const char *at, size_t num_bytes) {
    for (size_t offset = 0; offset < num_bytes; offset += CACHE_LINE) __builtin_prefetch(at + offset, 0, 2);
}

/* What a request's queries of a KV head read KV_AHEAD blocks after the ``i``-th of ``blocks`` of keys and as many of values:
 * after the last, keys of the next head. To ask for, no more: there may be none. */
static inline const float *kv_to_come(const struct attention *a, const int64_t *table, size_t blocks, int kv_head,
                                      size_t i) {
    const size_t part = (i + KV_AHEAD) / blocks, at = (i + KV_AHEAD) % blocks;
    return a->rows + (table[at] + part % 2 * a->kv_heads + kv_head + part / 2) * a->block_size * a->head_dim;
}

#define JOIN(name, suffix) name##_##suffix

#if defined(__x86_64__)

#define KERNEL(name) JOIN(name, avx512)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define LANES 16
#define VECTORS 4
#define INTEL 1
#include "compute.h"
#include "rounded.h"
#undef INTEL
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

#include "vnni.h"

#define KERNEL(name) JOIN(name, avx2)
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define VECTORS 2
#define INTEL 1
#include "compute.h"
#include "rounded.h"
#undef INTEL
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

#endif

#define KERNEL(name) JOIN(name, plain)
#define TARGET
#define LANES 4
#define VECTORS 4
#define INTEL 0
#include "compute.h"
#include "rounded.h"
#undef INTEL
#undef KERNEL
#undef TARGET
#undef LANES
#undef VECTORS

struct kernels {
    const char *name;
    void (*product[NUM_FORMS])(const char *, const float *, size_t, float *, size_t, int, int);
    void (*round_row)(const float *, size_t, const struct form, int8_t *, float *, float *, int32_t *);
    void (*dots[NUM_FORMS])(const char *, const struct rounded *, size_t, float *, size_t, int, int);
    void (*attend)(const struct attention *, const float *, const int64_t *, size_t, int, float *, size_t, float *);
    void (*turn)(const struct attention *, const int64_t *, size_t, size_t, int, float *);
    void (*attend_rows)(const struct attention *, const float *, size_t, const int64_t *, size_t, int, int,
                        const float *, float *, size_t, float *, size_t);
    void (*gate)(const float *, const float *, float *, size_t);
};

/* ``dots``: of which set those are, which gives the name. */
#define KERNELS(suffix, dots)                                                                       \
    {#dots,                                                                                         \
     {product0_##suffix, product1_##suffix, product2_##suffix, product3_##suffix},                  \
     round_row_##suffix,                                                                            \
     {dots0_##dots, dots1_##dots, dots2_##dots, dots3_##dots},                                      \
     attend_##suffix, turn_##suffix, attend_rows_##suffix, gate_##suffix}

static const struct kernels all[] = {
#if defined(__x86_64__)
    KERNELS(avx512, avx512_vnni),
    KERNELS(avx512, avx512),
    KERNELS(avx2, avx2),
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
#endif
    return 1;
}

/* The kernels of that name; NULL, with a Python error, if this processor has none. */
static const struct kernels *find(PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, text) == 0 && runs(&all[i])) return &all[i];
    PyErr_Format(PyExc_ValueError, "no kernels %R for this processor", name);
    return NULL;
}

/* ``stride``: floats from a row of ``out`` to the next. */
static void product(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                    size_t stride, size_t rows, size_t outs, size_t ins, int adds, int threads) {
    const long tiles = (long)(outs / TILE);
    const size_t tile_bytes = ins / forms[form].group * GROUP_BYTES(forms[form]);
    for (size_t row = 0; row < rows; row += ROWS) {
        int some = (int)(rows - row < ROWS ? rows - row : ROWS);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (long tile = 0; tile < tiles; tile++)
            kernels->product[form](weights + tile * tile_bytes, x + row * ins, ins, out + row * stride + tile * TILE,
                                   stride, some, adds);
    }
}

/* The same with inputs that are rounded first. False without memory for them. */
static int product_rounded(const struct kernels *kernels, int form, const char *weights, const float *x, float *out,
                           size_t stride, size_t rows, size_t outs, size_t ins, int adds, int threads) {
    const long tiles = (long)(outs / TILE);
    const size_t tile_bytes = ins / forms[form].group * GROUP_BYTES(forms[form]);
    const size_t num_scales = ins / ROUNDED, num_groups = ins / forms[form].group, most = rows < ROWS ? rows : ROWS;
    int8_t *codes = malloc(most * ins);
    float *scales = malloc(2 * most * num_scales * sizeof *scales), *sums = scales + most * num_scales;
    int32_t *offsets = malloc(most * num_groups * sizeof *offsets);
    if (codes == NULL || scales == NULL || offsets == NULL) {
        free(codes);
        free(scales);
        free(offsets);
        return 0;
    }
    const struct rounded rounded = {codes, scales, sums, offsets};
    for (size_t first = 0; first < rows; first += ROWS) {
        const long some = (long)(rows - first < ROWS ? rows - first : ROWS);
#pragma omp parallel num_threads(threads) if (threads > 1)
        {
#pragma omp for
            for (long row = 0; row < some; row++)
                kernels->round_row(x + (first + row) * ins, ins, forms[form], codes + row * ins,
                                   scales + row * num_scales, sums + row * num_scales, offsets + row * num_groups);
#pragma omp for
            for (long tile = 0; tile < tiles; tile++)
                kernels->dots[form](weights + tile * tile_bytes, &rounded, ins, out + first * stride + tile * TILE,
                                    stride, (int)some, adds);
        }
    }
    free(codes);
    free(scales);
    free(offsets);
    return 1;
}

static size_t thread_number(void) {
#ifdef _OPENMP
    extern int omp_get_thread_num(void);
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
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
    float *panels = malloc(a->kv_heads * head_floats * sizeof *panels);
    float *scores = malloc((size_t)threads * QUERIES * most * sizeof *scores);
    if (panels == NULL || scores == NULL) {
        free(panels);
        free(scores);
        return 0;
    }
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *own = scores + thread_number() * QUERIES * most;
#pragma omp for
        for (long item = 0; item < (long)(a->kv_heads * tiles); item++) {
            size_t head = item / tiles, first = item % tiles * TILE;
            kernels->turn(a, table, first, seen - first < TILE ? seen - first : TILE, (int)head,
                          panels + head * head_floats + first * dim);
        }
#pragma omp for schedule(dynamic)
        for (long item = 0; item < parts * (long)a->kv_heads * a->heads; item++) {
            long part = parts - 1 - item / ((long)a->kv_heads * a->heads); /* the longest first */
            long head = item % ((long)a->kv_heads * a->heads);
            int kv_head = (int)(head / a->heads);
            size_t first = part * QUERIES;
            kernels->attend_rows(a, queries + first * stride + head * dim, stride, table, before + first,
                                 (int)(num - first < QUERIES ? num - first : QUERIES), kv_head,
                                 panels + kv_head * head_floats, own, most, out + first * outs + head * dim, outs);
        }
    }
    free(panels);
    free(scores);
    return 1;
}

static void gate(const struct kernels *kernels, const float *x, float *out, size_t rows, size_t num, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < (long)rows; row++)
        kernels->gate(x + 2 * row * num, x + (2 * row + 1) * num, out + row * num, num);
}

/* ``codes`` [outs][ins], ``scales`` and ``minima`` [outs][groups]. */
static void pack(const struct form form, const uint8_t *codes, const float *scales, const float *minima, char *packed,
                 size_t outs, size_t ins) {
    const size_t groups = ins / form.group;
    const int in_word = 32 / form.bits;
    for (size_t out = 0; out < outs; out++)
        for (size_t g = 0; g < groups; g++) {
            char *group = packed + ((out / TILE) * groups + g) * GROUP_BYTES(form);
            const uint8_t *from = codes + out * ins + g * form.group;
            float *head = (float *)group + out % TILE;
            uint32_t *word = (uint32_t *)(group + HEAD_BYTES(form)) + out % TILE;
            head[0] = scales[out * groups + g];
            if (form.minima) head[TILE] = minima[out * groups + g];
            for (int k = 0; k < form.group; k++) {
                uint32_t *to = word + k / in_word * TILE;
                *to = (k % in_word ? *to : 0) | (uint32_t)from[k] << (form.bits * (k % in_word));
            }
        }
}

static PyObject *py_names(PyObject *self, PyObject *none) {
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names != NULL && i < sizeof all / sizeof *all; i++) {
        if (!runs(&all[i])) continue;
        PyObject *name = PyUnicode_FromString(all[i].name);
        if (name == NULL || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* Whether there is a form of that number; false with a Python error. */
static int is_form(int form) {
    if (form >= 0 && form < NUM_FORMS) return 1;
    PyErr_Format(PyExc_ValueError, "no form %d of codes", form);
    return 0;
}

static PyObject *py_packed_bytes(PyObject *self, PyObject *args) {
    int form;
    Py_ssize_t outs, ins;
    if (!PyArg_ParseTuple(args, "inn", &form, &outs, &ins) || !is_form(form)) return NULL;
    return PyLong_FromSize_t(outs / TILE * (ins / forms[form].group) * GROUP_BYTES(forms[form]));
}

static PyObject *py_pack(PyObject *self, PyObject *args) {
    int form;
    Py_ssize_t codes, scales, minima, packed, outs, ins;
    if (!PyArg_ParseTuple(args, "innnnnn", &form, &codes, &scales, &minima, &packed, &outs, &ins) || !is_form(form))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    pack(forms[form], (const uint8_t *)codes, (const float *)scales, (const float *)minima, (char *)packed, outs, ins);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_product(PyObject *self, PyObject *args) {
    PyObject *name;
    int form, rounds, adds, threads, done = 1;
    Py_ssize_t weights, x, out, stride, rows, outs, ins;
    if (!PyArg_ParseTuple(args, "Uinnnnnnnppi", &name, &form, &weights, &x, &out, &stride, &rows, &outs, &ins, &rounds,
                          &adds, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL || !is_form(form)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (rounds)
        done = product_rounded(kernels, form, (const char *)weights, (const float *)x, (float *)out, stride, rows, outs,
                               ins, adds, threads);
    else
        product(kernels, form, (const char *)weights, (const float *)x, (float *)out, stride, rows, outs, ins, adds,
                threads);
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_attend(PyObject *self, PyObject *args) {
    PyObject *name;
    int heads, threads, done;
    float scale, softcap;
    Py_ssize_t queries, stride, rows, tables, width, lengths, requests, kv_heads, size, dim, window, out;
    if (!PyArg_ParseTuple(args, "Unnnnnnnninnfnfni", &name, &queries, &stride, &rows, &tables, &width, &lengths,
                          &requests, &kv_heads, &heads, &size, &dim, &scale, &window, &softcap, &out, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL) return NULL;
    if (heads > MOST_HEADS) return PyErr_Format(PyExc_ValueError, "%d query heads to a KV head", heads);
    const struct attention a = {(const float *)rows, size, dim, kv_heads, heads, scale, window, softcap};
    Py_BEGIN_ALLOW_THREADS;
    done = attention(kernels, &a, (const float *)queries, stride, (const int64_t *)tables, width,
                     (const int64_t *)lengths, requests, (float *)out, threads);
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_attend_chunk(PyObject *self, PyObject *args) {
    PyObject *name;
    int heads, threads, done;
    float scale, softcap;
    Py_ssize_t queries, stride, rows, table, before, num, kv_heads, size, dim, window, out;
    if (!PyArg_ParseTuple(args, "Unnnnnnninnfnfni", &name, &queries, &stride, &rows, &table, &before, &num, &kv_heads,
                          &heads, &size, &dim, &scale, &window, &softcap, &out, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL) return NULL;
    const struct attention a = {(const float *)rows, size, dim, kv_heads, heads, scale, window, softcap};
    Py_BEGIN_ALLOW_THREADS;
    done = attention_of_chunk(kernels, &a, (const float *)queries, stride, (const int64_t *)table, before, num,
                              (float *)out, threads);
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_gate(PyObject *self, PyObject *args) {
    PyObject *name;
    int threads;
    Py_ssize_t x, out, rows, num;
    if (!PyArg_ParseTuple(args, "Unnnni", &name, &x, &out, &rows, &num, &threads)) return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    gate(kernels, (const float *)x, (float *)out, rows, num, threads);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"names", py_names, METH_NOARGS, NULL},
    {"packed_bytes", py_packed_bytes, METH_VARARGS, NULL},
    {"pack", py_pack, METH_VARARGS, NULL},
    {"product", py_product, METH_VARARGS, NULL},
    {"attend", py_attend, METH_VARARGS, NULL},
    {"attend_chunk", py_attend_chunk, METH_VARARGS, NULL},
    {"gate", py_gate, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0) Py_CLEAR(made);
    return made;
}
