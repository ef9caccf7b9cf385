/* The stack of Transformer layers (post-norm, as BERT's) over packed bfloat16 tokens: the kernels for tiles, one after the
   other, in one call, so that nothing waits for an interpreter in between. */

#if defined(__x86_64__) && defined(__linux__)

#include "tiles.h"

typedef struct {
    const bfloat16 *tiles;
    const float *bias, *logistic;
    int64_t inputs, outputs;
} product;

typedef struct {
    const float *weight, *bias;
    float epsilon;
} norm;

/* Queries, keys and values come of one product, or, if it has no tiles, queries of one and keys and values of another. */
typedef struct {
    product query_key_value, query, key_value, output, up, down;
    norm attention_norm, feed_forward_norm;
    int64_t heads, width;
} layer;

/* What all layers share. */
typedef struct {
    bfloat16 *sums; /* [tokens, hidden size] */
    bfloat16 *wide; /* [tokens, `wide_numbers` of Python] */
    const int32_t *offsets;
    int64_t sequences;
    parallel_runner parallel;
    int threads;
} stack;

static void multiply(const stack *s, const product *p, const bfloat16 *rows, int64_t count, const bfloat16 *addend,
                     bfloat16 *results) {
    tile_product(rows, p->tiles, p->bias, addend, p->logistic, results, count, p->inputs, p->outputs, p->inputs,
                 p->outputs, p->outputs, 0, s->parallel, s->threads);
}

static void normalize(const stack *s, const norm *n, const bfloat16 *rows, int64_t count, int64_t width,
                      bfloat16 *results) {
    layer_norm(rows, n->weight, n->bias, results, count, width, width, n->epsilon, s->parallel, s->threads);
}

/* Changes `rows`, the ones to answer for; `tokens` are attended, and may be the same. */
static int run_layer(const stack *s, const layer *l, bfloat16 *rows, int64_t count, const int32_t *row_offsets,
                     const bfloat16 *tokens, int64_t token_count) {
    int64_t inner = l->heads * l->width, size = l->output.outputs;
    bfloat16 *queries = s->wide, *keys, *context;
    int64_t query_stride, key_stride;
    if (l->query_key_value.tiles) {
        multiply(s, &l->query_key_value, tokens, token_count, NULL, queries);
        keys = queries + inner;
        query_stride = key_stride = 3 * inner;
        context = queries + 3 * inner * token_count;
    } else {
        multiply(s, &l->query, rows, count, NULL, queries);
        query_stride = inner;
        keys = queries + inner * count;
        multiply(s, &l->key_value, tokens, token_count, NULL, keys);
        key_stride = 2 * inner;
        context = keys + 2 * inner * token_count;
    }
    int fault = tile_attention(queries, keys, keys + inner, context, query_stride, key_stride, inner, row_offsets,
                               s->offsets, s->sequences, l->heads, l->width, s->parallel, s->threads);
    if (fault) return fault;
    multiply(s, &l->output, context, count, rows, s->sums);
    normalize(s, &l->attention_norm, s->sums, count, size, rows);
    multiply(s, &l->up, rows, count, NULL, s->wide);
    multiply(s, &l->down, s->wide, count, rows, s->sums);
    normalize(s, &l->feed_forward_norm, s->sums, count, size, rows);
    return 0;
}

/* Changes `hidden`, of all tokens. Where there are `wanted_offsets`, the last layer answers for `wanted_rows` alone, in
   `wanted`. */
int tile_encoder(const layer *layers, int64_t count, bfloat16 *hidden, const int32_t *offsets, int64_t sequences,
                 const int64_t *wanted_rows, const int32_t *wanted_offsets, bfloat16 *wanted, bfloat16 *sums,
                 bfloat16 *wide, parallel_runner parallel, int threads) {
    stack s = {.sums = sums, .wide = wide, .offsets = offsets, .sequences = sequences, .parallel = parallel,
               .threads = threads};
    for (int64_t i = 0; i < count; i++) {
        bfloat16 *rows = hidden;
        const int32_t *row_offsets = offsets;
        if (wanted_offsets && i == count - 1) {
            int64_t size = layers[i].output.outputs;
            row_offsets = wanted_offsets;
            rows = wanted;
            for (int64_t row = 0; row < wanted_offsets[sequences]; row++)
                memcpy(wanted + row * size, hidden + wanted_rows[row] * size, size * 2);
        }
        int fault = run_layer(&s, layers + i, rows, row_offsets[sequences], row_offsets, hidden, offsets[sequences]);
        if (fault) return fault;
    }
    return 0;
}

#endif
