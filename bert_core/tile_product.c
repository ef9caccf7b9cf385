/* Linear layers of bfloat16 rows and weights, on the matrix tiles (AMX) of x86-64 processors.

   Sums are float32, from the bias on. What follows them (an activation, another tensor added, rounding to bfloat16) is
   done before they leave the processor's caches, and in between the products of what comes next.

   oneDNN, as PyTorch offers it, takes about twice as long with few rows and with the activation, makes machine code for
   every number of rows, and rounds results to the dtype of the rows. */

#if defined(__x86_64__) && defined(__linux__)

#include <stdatomic.h>

#include "tiles.h"

enum {
    OUTPUTS = 2 * ROWS,       /* that are made at once */
    GROUP = 2 * ROWS,         /* of rows that are multiplied at once */
    SHARE_BYTES = 1280 << 10, /* of weights, about, which stay in the second cache while all rows meet them */
    SHARES = 8                /* for each of several threads */
};

/* What becomes of sums. The inner functions are compiled once for each of these, and for one tile of rows and for two. */
typedef enum { AS_FLOAT32, ROUNDED, ACTIVATED, ADDED } ending;

/* Strides are in numbers. */
typedef struct {
    const bfloat16 *rows, *tiles, *addend;
    const float *bias;
    void *results;
    int64_t count, inputs, outputs, row_stride, addend_stride, result_stride;
    float terms[3]; /* of `activate` */
    int64_t share;  /* of the outputs: what a thread takes at once */
} call;

typedef struct {
    call call;
    atomic_llong next; /* the first output that nobody has taken */
} shared_call;

/* Sums that are to be stored: of one tile of rows, or of a second one too, which may overlap the first. */
typedef struct {
    float *sums; /* [GROUP, OUTPUTS] */
    int64_t upper, lower, output;
    int rows, stored;
} block;

static inline int64_t row_of(const block *b, int i) { return i < ROWS ? b->upper + i : b->lower + i - ROWS; }

/* x times the logistic function of x * (a + b x^2 + c x^4) * ln(2); a, b and c are the call's terms. For x^2 beyond 40 the
   factor stays what it is there, where the function is 0 or 1 to the last digit, whatever the signs of b and c. */
ON_TILES static inline __m512 activate(__m512 x, const call *c) {
    __m512 square = _mm512_min_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(40.0f));
    __m512 factor = _mm512_fmadd_ps(_mm512_set1_ps(-c->terms[2]), square, _mm512_set1_ps(-c->terms[1]));
    factor = _mm512_fmadd_ps(factor, square, _mm512_set1_ps(-c->terms[0]));
    __m512 odds_against = power_of_two(_mm512_mul_ps(factor, x));
    return _mm512_mul_ps(x, _mm512_rcp14_ps(_mm512_add_ps(odds_against, _mm512_set1_ps(1.0f))));
}

/* Stores so many rows more of a block, or as many as are left. */
ON_TILES static inline __attribute__((always_inline)) void store(const call *c, block *b, int rows, ending what) {
    int end = b->stored + rows < b->rows ? b->stored + rows : b->rows;
    for (int i = b->stored; i < end; i++) {
        __m512 one = _mm512_load_ps(b->sums + i * OUTPUTS), two = _mm512_load_ps(b->sums + i * OUTPUTS + ROWS);
        int64_t row = row_of(b, i), at = row * c->result_stride + b->output;
        if (what == AS_FLOAT32) {
            _mm512_storeu_ps((float *)c->results + at, one);
            _mm512_storeu_ps((float *)c->results + at + ROWS, two);
            continue;
        }
        if (what == ACTIVATED) {
            one = activate(one, c);
            two = activate(two, c);
        }
        if (what == ADDED) {
            const bfloat16 *addend = c->addend + row * c->addend_stride + b->output;
            one = _mm512_add_ps(one, as_float32(addend));
            two = _mm512_add_ps(two, as_float32(addend + ROWS));
        }
        _mm512_storeu_si512((bfloat16 *)c->results + at, (__m512i)_mm512_cvtne2ps_pbh(two, one));
    }
    b->stored = end;
}

/* Where rows of a block will be stored is asked for early. */
ON_TILES static inline void prepare(const call *c, const block *b, int first, int rows, ending what) {
    for (int i = first; i < first + rows && i < b->rows; i++) {
        int64_t at = row_of(b, i) * c->result_stride + b->output;
        __builtin_prefetch(what == AS_FLOAT32 ? (void *)((float *)c->results + at) : (bfloat16 *)c->results + at, 1);
    }
}

/* Fills a block; while its sums are made, those of the one `before` are stored. */
ON_TILES static inline __attribute__((always_inline)) void multiply(const call *c, const block *b, int more,
                                                                    block *before, ending what) {
    const bfloat16 *upper = c->rows + b->upper * c->row_stride, *lower = c->rows + b->lower * c->row_stride;
    const bfloat16 *one = c->tiles + b->output * c->inputs, *two = one + ROWS * c->inputs;
    const float *bias = c->bias + b->output;
    const int rows_a_step = (int)((GROUP * STEP + c->inputs - 1) / c->inputs);
    /* A stride of zero: each row of sums starts from the bias. */
    _tile_loadd(0, bias, 0);
    _tile_loadd(1, bias + ROWS, 0);
    if (more) {
        _tile_loadd(2, bias, 0);
        _tile_loadd(3, bias + ROWS, 0);
    }
    int prepared = 0;
    for (int64_t part = 0; part < c->inputs; part += STEP, prepared += rows_a_step) {
        _tile_loadd(4, upper + part, c->row_stride * 2);
        _tile_loadd(6, one + part * ROWS, STEP * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, two + part * ROWS, STEP * 2);
        _tile_dpbf16ps(1, 4, 7);
        if (more) {
            _tile_loadd(5, lower + part, c->row_stride * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        store(c, before, rows_a_step, what);
        prepare(c, b, prepared, rows_a_step, what);
    }
    store_sums(b->sums, OUTPUTS, more);
    WRITTEN_FOR_TILES;
}

ON_TILES static inline __attribute__((always_inline)) void work_on(shared_call *shared, ending what) {
    float sums[2][GROUP * OUTPUTS] __attribute__((aligned(64)));
    const call c = shared->call;                           /* a copy, which no store can change */
    const int tile = c.count < ROWS ? (int)c.count : ROWS; /* its rows */
    block unstored = {0};
    int turn = 0;
    tile_settings before = set_tiles(tile);
    for (int64_t begin; (begin = atomic_fetch_add(&shared->next, c.share)) < c.outputs;) {
        int64_t end = begin + c.share < c.outputs ? begin + c.share : c.outputs;
        for (int64_t row = 0; row < c.count; row += GROUP) {
            /* The last tile of rows begins where it is full, above the end of the one before. */
            int64_t last = c.count - tile, second = row + ROWS;
            block b = {.upper = row < last ? row : last, .lower = second < last ? second : last};
            b.rows = second < c.count ? GROUP : tile;
            for (b.output = begin; b.output < end; b.output += OUTPUTS) {
                b.sums = sums[turn];
                if (b.rows > ROWS)
                    multiply(&c, &b, 1, &unstored, what);
                else
                    multiply(&c, &b, 0, &unstored, what);
                unstored = b;
                turn = !turn;
            }
        }
    }
    store(&c, &unstored, GROUP, what);
    give_tiles_back(&before);
}

ON_TILES static void work_as_float32(void *c) { work_on(c, AS_FLOAT32); }
ON_TILES static void work_rounded(void *c) { work_on(c, ROUNDED); }
ON_TILES static void work_activated(void *c) { work_on(c, ACTIVATED); }
ON_TILES static void work_added(void *c) { work_on(c, ADDED); }

void tile_product(const void *rows, const void *tiles, const float *bias, const void *addend, const float *logistic,
                  void *results, int64_t count, int64_t inputs, int64_t outputs, int64_t row_stride,
                  int64_t addend_stride, int64_t result_stride, int in_float32, parallel_runner parallel, int threads) {
    if (!count) return;
    call c = {.rows = rows, .tiles = tiles, .bias = bias, .addend = addend, .results = results, .count = count,
              .inputs = inputs, .outputs = outputs, .row_stride = row_stride, .addend_stride = addend_stride,
              .result_stride = result_stride};
    if (logistic) memcpy(c.terms, logistic, sizeof c.terms);
    int64_t blocks = outputs / OUTPUTS, shares = outputs * inputs * 2 / SHARE_BYTES + 1;
    if (threads > 1 && shares < SHARES * threads) shares = SHARES * threads;
    if (threads > blocks) threads = (int)blocks;
    c.share = (blocks + shares - 1) / shares * OUTPUTS;
    shared_call shared = {.call = c};
    run_on_threads(parallel,
                   in_float32 ? work_as_float32
                   : logistic ? work_activated
                   : addend   ? work_added
                              : work_rounded,
                   &shared, threads);
}

#endif
