/* The kernels of kernels.h for Python.
 *
 * Addresses come as integers; whoever calls answers for them (engines/torch_engine/layers/cpu_kernels.py). The
 * interpreter's lock is released while they compute.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"

#define INTERFACE 4 /* what functions take: `cpu_kernels.INTERFACE` is that of the Python around */

/* The kernels of that name; NULL, with a Python error, if this processor has none. */
static const struct kernels *find(PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    const struct kernels *found = kernels_named(text);
    if (found == NULL) PyErr_Format(PyExc_ValueError, "no kernels %R for this processor", name);
    return found;
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

/* The same of how KV is held. */
static int is_kv(int kv) {
    if (kv >= 0 && kv < NUM_KV) return 1;
    PyErr_Format(PyExc_ValueError, "no kind %d of KV", kv);
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
    if (rounds && kernels->dots[form] == NULL)
        return PyErr_Format(PyExc_ValueError, "inputs are not rounded for weights of form %d", form);
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
    int heads, kv, threads, done;
    float scale, softcap;
    Py_ssize_t queries, stride, rows, tables, width, lengths, requests, kv_heads, size, dim, window, out;
    if (!PyArg_ParseTuple(args, "Unninnnnnninnfnfni", &name, &queries, &stride, &kv, &rows, &tables, &width, &lengths,
                          &requests, &kv_heads, &heads, &size, &dim, &scale, &window, &softcap, &out, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL || !is_kv(kv)) return NULL;
    if (heads > MOST_HEADS) return PyErr_Format(PyExc_ValueError, "%d query heads to a KV head", heads);
    const struct attention a = {(const char *)rows, kv, size, dim, kv_heads, heads, scale, window, softcap};
    Py_BEGIN_ALLOW_THREADS;
    done = attention(kernels, &a, (const float *)queries, stride, (const int64_t *)tables, width,
                     (const int64_t *)lengths, requests, (float *)out, threads);
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_attend_chunk(PyObject *self, PyObject *args) {
    PyObject *name;
    int heads, kv, threads, done;
    float scale, softcap;
    Py_ssize_t queries, stride, rows, table, before, num, kv_heads, size, dim, window, out;
    if (!PyArg_ParseTuple(args, "Unninnnnninnfnfni", &name, &queries, &stride, &kv, &rows, &table, &before, &num, &kv_heads,
                          &heads, &size, &dim, &scale, &window, &softcap, &out, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL || !is_kv(kv)) return NULL;
    const struct attention a = {(const char *)rows, kv, size, dim, kv_heads, heads, scale, window, softcap};
    Py_BEGIN_ALLOW_THREADS;
    done = attention_of_chunk(kernels, &a, (const float *)queries, stride, (const int64_t *)table, before, num,
                              (float *)out, threads);
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_store(PyObject *self, PyObject *args) {
    PyObject *name;
    int kv, threads;
    Py_ssize_t from, stride, index, tokens, heads, dim, rows;
    if (!PyArg_ParseTuple(args, "Uinnnnnnni", &name, &kv, &from, &stride, &index, &tokens, &heads, &dim, &rows,
                          &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL || !is_kv(kv)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    store(kernels, kv, (const float *)from, stride, (const int64_t *)index, tokens, heads, dim, (char *)rows, threads);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_normalise(PyObject *self, PyObject *args) {
    PyObject *name;
    float epsilon;
    int threads;
    Py_ssize_t x, weight, out, rows, num;
    if (!PyArg_ParseTuple(args, "Unnfnnni", &name, &x, &weight, &epsilon, &out, &rows, &num, &threads)) return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    normalise(kernels, (const float *)x, (const float *)weight, epsilon, (float *)out, rows, num, threads);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_rotate(PyObject *self, PyObject *args) {
    PyObject *name;
    int threads;
    Py_ssize_t x, stride, rows, heads, dim, dims, angles;
    if (!PyArg_ParseTuple(args, "Unnnnnnni", &name, &x, &stride, &rows, &heads, &dim, &dims, &angles, &threads))
        return NULL;
    const struct kernels *kernels = find(name);
    if (kernels == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rotate(kernels, (float *)x, stride, rows, heads, dim, dims, (const float *)angles, threads);
    Py_END_ALLOW_THREADS;
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
    {"store", py_store, METH_VARARGS, NULL},
    {"normalise", py_normalise, METH_VARARGS, NULL},
    {"rotate", py_rotate, METH_VARARGS, NULL},
    {"gate", py_gate, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0) Py_CLEAR(made);
    return made;
}
