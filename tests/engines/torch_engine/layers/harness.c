/* The kernels without Python, for processors that are emulated: tasks from standard input, results to standard output.
 *
 * A task is a line of words and the arrays that it needs. Each array ends where memory that must not be touched begins,
 * and begins wherever that leads to: what reads or writes past an end dies, whatever the size of a page.
 */

#define _GNU_SOURCE
#include "kernels.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void *fresh(size_t num_bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (num_bytes + page - 1) / page * page;
    char *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + whole, page, PROT_NONE) != 0) exit(2);
    return at + whole - num_bytes;
}

static void *given(size_t num, size_t item_bytes) {
    void *at = fresh(num * item_bytes);
    if (fread(at, item_bytes, num, stdin) != num) exit(3);
    return at;
}

static int number(void) {
    int value;
    if (scanf("%d", &value) != 1) exit(4);
    return value;
}

static float real(void) {
    float value;
    if (scanf("%a", &value) != 1) exit(4);
    return value;
}

static void answer(const void *values, size_t num, size_t item_bytes) {
    fwrite(values, item_bytes, num, stdout);
}

static void do_product(const struct kernels *kernels) {
    const int form = number(), rounds = number(), adds = number(), threads = number();
    const size_t rows = number(), outs = number(), ins = number(), groups = outs * ins / forms[form].group;
    getchar();
    const uint8_t *codes = given(outs * ins, forms[form].bits == 16 ? 2 : 1);
    const float *scales = forms[form].bits < 16 ? given(groups, 4) : NULL, *minima = forms[form].minima ? given(groups, 4) : NULL;
    const float *x = given(rows * ins, 4);
    float *out = given(rows * outs, 4);
    char *packed = fresh(outs / TILE * (ins / forms[form].group) * GROUP_BYTES(forms[form]));
    pack(forms[form], codes, scales, minima, packed, outs, ins);
    if (rounds)
        product_rounded(kernels, form, packed, x, out, outs, rows, outs, ins, adds, threads);
    else
        product(kernels, form, packed, x, out, outs, rows, outs, ins, adds, threads);
    answer(out, rows * outs, 4);
}

static void do_attention(const struct kernels *kernels, int is_chunk) {
    struct attention a = {0};
    a.kv = number();
    a.heads = number();
    a.kv_heads = number();
    a.block_size = number();
    a.head_dim = number();
    a.scale = real();
    a.window = number();
    a.softcap = real();
    const size_t requests = number(), width = number(), rows = number(), before = number();
    const size_t outs = requests * a.kv_heads * a.heads * a.head_dim;
    getchar();
    const float *queries = given(outs, 4);
    a.rows = given(rows * a.block_size, token_bytes(a.kv, a.head_dim));
    const int64_t *tables = given(is_chunk ? width : requests * width, 8);
    float *out = fresh(outs * 4);
    if (is_chunk)
        attention_of_chunk(kernels, &a, queries, outs / requests, tables, before, requests, out, 1);
    else
        attention(kernels, &a, queries, outs / requests, tables, width, given(requests, 8), requests, out, 1);
    answer(out, outs, 4);
}

static void do_gate(const struct kernels *kernels) {
    const size_t rows = number(), num = number();
    getchar();
    const float *x = given(2 * rows * num, 4);
    float *out = fresh(rows * num * 4);
    gate(kernels, x, out, rows, num, 1);
    answer(out, rows * num, 4);
}

static void do_normalise(const struct kernels *kernels) {
    const size_t rows = number(), num = number();
    const float epsilon = real();
    getchar();
    const float *x = given(rows * num, 4), *weight = given(num, 4);
    float *out = fresh(rows * num * 4);
    normalise(kernels, x, weight, epsilon, out, rows, num, 1);
    answer(out, rows * num, 4);
}

static void do_rotate(const struct kernels *kernels) {
    const size_t rows = number(), heads = number(), dim = number(), dims = number();
    getchar();
    float *x = given(rows * heads * dim, 4);
    rotate(kernels, x, heads * dim, rows, heads, dim, dims, given(rows * dims, 4), 1);
    answer(x, rows * heads * dim, 4);
}

static void do_store(const struct kernels *kernels) {
    const int kv = number();
    const size_t tokens = number(), heads = number(), dim = number(), rows = number(), num_bytes = token_bytes(kv, dim);
    getchar();
    const float *from = given(tokens * heads * dim, 4);
    const int64_t *index = given(tokens * heads, 8);
    char *to = given(rows, num_bytes);
    store(kernels, kv, from, heads * dim, index, tokens, heads, dim, to, 1);
    answer(to, rows, num_bytes);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (runs(&all[i])) printf("%s\n", all[i].name);
        return 0;
    }
    const struct kernels *kernels = kernels_named(argv[1]);
    if (kernels == NULL) return 1;
    for (char task[16]; scanf("%15s", task) == 1;) {
        if (strcmp(task, "product") == 0) do_product(kernels);
        if (strcmp(task, "attend") == 0) do_attention(kernels, 0);
        if (strcmp(task, "chunk") == 0) do_attention(kernels, 1);
        if (strcmp(task, "store") == 0) do_store(kernels);
        if (strcmp(task, "normalise") == 0) do_normalise(kernels);
        if (strcmp(task, "rotate") == 0) do_rotate(kernels);
        if (strcmp(task, "gate") == 0) do_gate(kernels);
    }
    return 0;
}
