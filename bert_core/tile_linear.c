/* A linear layer of bfloat16 rows and weights with results in float32, on the matrix tiles (AMX) of x86-64 processors.

   oneDNN's product, as PyTorch offers it, rounds results to the dtype of the rows. With few rows it takes as long as
   memory takes to give the weights, which are half as long as in float32. */

#if defined(__x86_64__) && defined(__linux__)

#include <stdatomic.h>

#include "tiles.h"

enum {
    OUTPUTS = 2 * ROWS, /* of one pass over the inputs */
    SHARE = 16          /* times OUTPUTS: what a thread takes at once */
};

typedef struct {
    const bfloat16 *rows, *tiles;
    const float *bias;
    float *results;
    int64_t count, inputs, outputs;
    atomic_llong next;
} call;

/* Outputs `first` and 31 more of 16 rows, or of as many as the tiles are set to; of 32 where there are `more`. */
ON_TILES static inline void multiply(const call *c, int64_t row, int more, int64_t first) {
    const bfloat16 *rows = c->rows + row * c->inputs;
    const bfloat16 *one = c->tiles + first * c->inputs, *two = one + ROWS * c->inputs;
    float *results = c->results + row * c->outputs + first;
    /* A stride of zero: each row of sums starts from the bias. */
    _tile_loadd(0, c->bias + first, 0);
    _tile_loadd(1, c->bias + first + ROWS, 0);
    if (more) {
        _tile_loadd(2, c->bias + first, 0);
        _tile_loadd(3, c->bias + first + ROWS, 0);
    }
    for (int64_t part = 0; part < c->inputs; part += STEP) {
        _tile_loadd(4, rows + part, c->inputs * 2);
        _tile_loadd(6, one + part * ROWS, STEP * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, two + part * ROWS, STEP * 2);
        _tile_dpbf16ps(1, 4, 7);
        if (more) {
            _tile_loadd(5, rows + ROWS * c->inputs + part, c->inputs * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    store_sums(results, c->outputs, more);
}

ON_TILES static void work(void *argument) {
    call *c = argument;
    tile_settings before = set_tiles(c->count < ROWS ? (int)c->count : ROWS);
    for (int64_t begin; (begin = atomic_fetch_add(&c->next, SHARE * OUTPUTS)) < c->outputs;) {
        int64_t end = begin + SHARE * OUTPUTS < c->outputs ? begin + SHARE * OUTPUTS : c->outputs;
        for (int64_t first = begin; first < end; first += OUTPUTS)
            for (int64_t row = 0; row < c->count;) {
                int more = c->count - row >= 2 * ROWS;
                multiply(c, row, more, first);
                row += (more ? 2 : 1) * ROWS;
                /* The last rows once more with some before them, rather than tiles of another size. */
                if (row < c->count && row > c->count - ROWS) row = c->count - ROWS;
            }
    }
    give_tiles_back(&before);
}

void tile_linear(const void *rows, const void *tiles, const float *bias, float *results, int64_t count, int64_t inputs,
                 int64_t outputs, parallel_runner parallel, int threads) {
    call c = {.rows = rows, .tiles = tiles, .bias = bias, .results = results, .count = count, .inputs = inputs,
              .outputs = outputs};
    run_on_threads(parallel, work, &c, threads);
}

#endif
