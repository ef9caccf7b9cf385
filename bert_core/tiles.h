/* What the kernels for the matrix tiles (AMX) of x86-64 processors under Linux share.

   Plain C without Python in it; `tiles.py` loads the library. */

#ifndef TILES_H
#define TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define ON_TILES __attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")))

/* The intrinsics that load tiles, or how they are set, do not tell the compiler all the memory that they read. */
#define WRITTEN_FOR_TILES __asm__ volatile("" ::: "memory")

enum {
    ROWS = 16,         /* of a tile */
    STEP = 32,         /* bfloat16 numbers in a row of a tile: what one product sums over */
    TILE = ROWS * STEP /* bfloat16 numbers in a tile */
};

typedef uint16_t bfloat16;

/* `GOMP_parallel` of PyTorch's own threads: run `work(argument)` on so many. */
typedef void (*parallel_runner)(void (*work)(void *), void *argument, unsigned threads, unsigned flags);

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_of_row[16];
    uint8_t rows[16];
} tile_settings;

/* Tiles 0 to 3 hold sums and 4 and 5 first factors, of so many rows, at most 16; 6 and 7 hold second factors.
   PyTorch's products remember how they have set the tiles of a thread, so what was set is to be given back. */
ON_TILES static inline tile_settings set_tiles(int rows) {
    tile_settings before, ours = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        ours.bytes_of_row[i] = STEP * 2;
        ours.rows[i] = i < 6 ? rows : ROWS;
    }
    _tile_storeconfig(&before);
    WRITTEN_FOR_TILES;
    _tile_loadconfig(&ours);
    return before;
}

ON_TILES static inline void give_tiles_back(const tile_settings *before) {
    WRITTEN_FOR_TILES;
    if (before->palette)
        _tile_loadconfig(before);
    else
        _tile_release();
}

/* The four tiles of sums as a block of 32 numbers by 16 rows, or by 32 where there are `more`. */
ON_TILES static inline void store_sums(float *block, int64_t stride, int more) {
    _tile_stored(0, block, stride * 4);
    _tile_stored(1, block + ROWS, stride * 4);
    if (more) {
        block += ROWS * stride;
        _tile_stored(2, block, stride * 4);
        _tile_stored(3, block + ROWS, stride * 4);
    }
}

ON_TILES static inline __m512 as_float32(const bfloat16 *numbers) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)numbers));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* So that nothing of the mathematical library is needed. */
static inline float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

/* 2^x to 4e-6 of it: a polynomial over the fraction, scaled by the power of two below. */
ON_TILES static inline __m512 power_of_two(__m512 x) {
    __m512 fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    __m512 sum = _mm512_set1_ps(1.3697664e-2f);
    sum = _mm512_fmadd_ps(sum, fraction, _mm512_set1_ps(5.1690358e-2f));
    sum = _mm512_fmadd_ps(sum, fraction, _mm512_set1_ps(2.4163845e-1f));
    sum = _mm512_fmadd_ps(sum, fraction, _mm512_set1_ps(6.9296687e-1f));
    sum = _mm512_fmadd_ps(sum, fraction, _mm512_set1_ps(1.0000037f));
    return _mm512_scalef_ps(sum, x);
}

static inline void run_on_threads(parallel_runner parallel, void (*work)(void *), void *argument, int threads) {
    if (parallel && threads > 1)
        parallel(work, argument, (unsigned)threads, 0);
    else
        work(argument);
}

/* The kernels; how each is done is told where it is. Strides are in numbers. Those that give a number give 0, or what is
   wrong. */

enum { NO_MEMORY = 1, BAD_OFFSETS };

/* Softmax(Q K^T / sqrt(width)) V for each of the sequences, whose rows begin and end at the offsets, and each head. */
int tile_attention(const void *queries, const void *keys, const void *values, void *context, int64_t query_stride,
                   int64_t key_stride, int64_t context_stride, const int32_t *query_offsets, const int32_t *key_offsets,
                   int64_t sequences, int64_t heads, int64_t width, parallel_runner parallel, int threads);

/* Rows times weights, which are laid out as tiles, plus the bias; float32, or bfloat16. If bfloat16, there may be an
   addend, or an activation, whose three numbers are `logistic`. */
void tile_product(const void *rows, const void *tiles, const float *bias, const void *addend, const float *logistic,
                  void *results, int64_t count, int64_t inputs, int64_t outputs, int64_t row_stride,
                  int64_t addend_stride, int64_t result_stride, int in_float32, parallel_runner parallel, int threads);

/* LayerNorm of rows; the width is a multiple of STEP. */
void layer_norm(const void *rows, const float *weight, const float *bias, void *results, int64_t count, int64_t width,
                int64_t row_stride, float epsilon, parallel_runner parallel, int threads);

#endif
