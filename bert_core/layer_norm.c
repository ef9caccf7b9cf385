/* LayerNorm (Ba, Kiros and Hinton 2016) of bfloat16 rows, summed in float32, on x86-64 processors with AVX-512.

   It needs no tiles, but serves where there are some: PyTorch's own takes twice as long. */

#if defined(__x86_64__) && defined(__linux__)

#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "tiles.h"

enum { TAKEN = 64 /* rows, by a thread at once */ };

typedef struct {
    const bfloat16 *rows;
    const float *weight, *bias;
    bfloat16 *results;
    int64_t count, width, row_stride;
    float epsilon;
    atomic_llong next; /* the first row that nobody has taken */
} call;

ON_TILES static void normalize(const call *c, const bfloat16 *row, bfloat16 *result) {
    const __m512 zero = _mm512_setzero_ps();
    __m512 one = zero, two = zero;
    for (int64_t i = 0; i < c->width; i += STEP) {
        one = _mm512_add_ps(one, as_float32(row + i));
        two = _mm512_add_ps(two, as_float32(row + i + STEP / 2));
    }
    float size = (float)c->width, mean = _mm512_reduce_add_ps(_mm512_add_ps(one, two)) / size;
    const __m512 means = _mm512_set1_ps(mean);
    one = two = zero;
    for (int64_t i = 0; i < c->width; i += STEP) {
        __m512 first = _mm512_sub_ps(as_float32(row + i), means);
        __m512 second = _mm512_sub_ps(as_float32(row + i + STEP / 2), means);
        one = _mm512_fmadd_ps(first, first, one);
        two = _mm512_fmadd_ps(second, second, two);
    }
    float variance = _mm512_reduce_add_ps(_mm512_add_ps(one, two)) / size;
    /* A variance beyond float32 shall not pass for one that makes all rows alike. */
    const __m512 factor = _mm512_set1_ps(variance <= FLT_MAX ? 1.0f / square_root(variance + c->epsilon) : NAN);
    for (int64_t i = 0; i < c->width; i += STEP) {
        const float *weight = c->weight + i, *bias = c->bias + i;
        __m512 first = _mm512_mul_ps(_mm512_sub_ps(as_float32(row + i), means), factor);
        __m512 second = _mm512_mul_ps(_mm512_sub_ps(as_float32(row + i + STEP / 2), means), factor);
        first = _mm512_fmadd_ps(first, _mm512_loadu_ps(weight), _mm512_loadu_ps(bias));
        second = _mm512_fmadd_ps(second, _mm512_loadu_ps(weight + STEP / 2), _mm512_loadu_ps(bias + STEP / 2));
        _mm512_storeu_si512(result + i, (__m512i)_mm512_cvtne2ps_pbh(second, first));
    }
}

ON_TILES static void work(void *argument) {
    call *c = argument;
    for (int64_t begin; (begin = atomic_fetch_add(&c->next, TAKEN)) < c->count;) {
        int64_t end = begin + TAKEN < c->count ? begin + TAKEN : c->count;
        for (int64_t row = begin; row < end; row++)
            normalize(c, c->rows + row * c->row_stride, c->results + row * c->width);
    }
}

void layer_norm(const void *rows, const float *weight, const float *bias, void *results, int64_t count, int64_t width,
                int64_t row_stride, float epsilon, parallel_runner parallel, int threads) {
    call c = {.rows = rows, .weight = weight, .bias = bias, .results = results, .count = count, .width = width,
              .row_stride = row_stride, .epsilon = epsilon};
    run_on_threads(parallel, work, &c, count > TAKEN ? threads : 1);
}

#endif
