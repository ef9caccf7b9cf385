/* Attention over packed bfloat16 sequences, on the matrix tiles (AMX) of x86-64 processors under Linux.

   For each sequence and each head: softmax(scale * Q K^T) V. Products are of bfloat16 numbers with sums in float32, on
   tiles of 16 rows of 64 bytes; the softmax is float32, and its numerators are rounded to bfloat16 for the second
   product, as PyTorch's own kernel does. A thread has no more scores at once than those of 32 queries. */

#if defined(__x86_64__) && defined(__linux__)

#include <float.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tiles.h"

/* Numbers, not bytes, in strides. Rows of each head are `width` neighbouring numbers; heads are neighbours. */
typedef struct {
    const bfloat16 *queries, *keys, *values;
    bfloat16 *context;
    int64_t query_stride, key_stride, context_stride;
    const int32_t *query_offsets, *key_offsets; /* sequences + 1 of each: the first row of each sequence, and the end */
    int64_t sequences, heads, width;
    float scale;
    int64_t longest;
    atomic_llong next; /* the sequence and head that nobody has taken */
    atomic_int failed;
} call;

/* What one thread works with. Tiles of keys and values are laid out as the second factor of a product: each row
   holds pairs of neighbours along the axis that is summed over. */
typedef struct {
    bfloat16 *key_tiles, *value_tiles; /* [padded * width] */
    bfloat16 *queries;                 /* [2 * ROWS, width], where fewer rows are left */
    float *scores;                     /* [2 * ROWS, padded + ROWS] */
    bfloat16 *weights;                 /* [2 * ROWS, padded + STEP] */
    float *context;                    /* [2 * ROWS, STEP] */
    int64_t score_stride, weight_stride;
} scratch;

/* A tile as 16 registers of 16 numbers of 4 bytes. */
ON_TILES static inline void transpose(__m512i rows[ROWS]) {
    __m512i other[ROWS];
    for (int i = 0; i < 8; i++) {
        other[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        other[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        rows[4 * i] = _mm512_unpacklo_epi64(other[4 * i], other[4 * i + 2]);
        rows[4 * i + 1] = _mm512_unpackhi_epi64(other[4 * i], other[4 * i + 2]);
        rows[4 * i + 2] = _mm512_unpacklo_epi64(other[4 * i + 1], other[4 * i + 3]);
        rows[4 * i + 3] = _mm512_unpackhi_epi64(other[4 * i + 1], other[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        other[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        other[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        other[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        other[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        rows[i] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0xdd);
    }
}

ON_TILES static void lay_out_keys(const call *c, const bfloat16 *keys, int64_t count, scratch *s) {
    for (int64_t first = 0; first < (count + STEP - 1) / STEP * STEP; first += ROWS)
        for (int64_t part = 0; part < c->width; part += STEP) {
            __m512i rows[ROWS];
            for (int i = 0; i < ROWS; i++)
                rows[i] = first + i < count ? _mm512_loadu_si512(keys + (first + i) * c->key_stride + part)
                                            : _mm512_setzero_si512();
            transpose(rows);
            bfloat16 *tile = s->key_tiles + first * c->width + part * ROWS;
            for (int i = 0; i < ROWS; i++) _mm512_store_si512(tile + i * STEP, rows[i]);
        }
}

ON_TILES static void lay_out_values(const call *c, const bfloat16 *values, int64_t count, scratch *s) {
    const __m512i count_up = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5,
                                              5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i of_the_second = _mm512_set1_epi32(STEP << 16);
    const __m512i lower = _mm512_add_epi16(count_up, of_the_second);
    const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(ROWS));
    for (int64_t first = 0; first < count; first += STEP)
        for (int64_t part = 0; part < c->width; part += STEP) {
            bfloat16 *tiles = s->value_tiles + first * c->width + part * STEP;
            for (int i = 0; i < ROWS; i++) {
                int64_t row = first + 2 * i;
                const bfloat16 *from = values + row * c->key_stride + part;
                __m512i one = row < count ? _mm512_loadu_si512(from) : _mm512_setzero_si512();
                __m512i two = row + 1 < count ? _mm512_loadu_si512(from + c->key_stride) : _mm512_setzero_si512();
                _mm512_store_si512(tiles + i * STEP, _mm512_permutex2var_epi16(one, lower, two));
                _mm512_store_si512(tiles + TILE + i * STEP, _mm512_permutex2var_epi16(one, upper, two));
            }
        }
}

/* Q K^T of 16 queries, or of 32 where there are `more`. */
ON_TILES static void multiply_keys(const bfloat16 *queries, int64_t stride, int more, int64_t width, int64_t padded,
                                   scratch *s) {
    WRITTEN_FOR_TILES;
    for (int64_t key = 0; key < padded; key += STEP) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t part = 0; part < width; part += STEP) {
            const bfloat16 *tile = s->key_tiles + key * width + part * ROWS;
            if (key == 0 || width > STEP) {
                _tile_loadd(4, queries + part, stride * 2);
                if (more) _tile_loadd(5, queries + ROWS * stride + part, stride * 2);
            }
            _tile_loadd(6, tile, STEP * 2);
            _tile_dpbf16ps(0, 4, 6);
            if (more) _tile_dpbf16ps(2, 5, 6);
            _tile_loadd(7, tile + ROWS * width, STEP * 2);
            _tile_dpbf16ps(1, 4, 7);
            if (more) _tile_dpbf16ps(3, 5, 7);
        }
        store_sums(s->scores + key, s->score_stride, more);
    }
}

/* Numerators of the softmax of up to 16 rows of scores, and for each row one over their sum. */
ON_TILES static void exponentiate(const float *scores, bfloat16 *weights, float *reciprocals, int rows, int64_t keys,
                                  float scale, const scratch *s) {
    __m512 lanes[ROWS];
    float maxima[ROWS];
    const __m512 factor = _mm512_set1_ps(scale * 1.44269504f); /* log2(e) */
    for (int i = 0; i < ROWS; i++) lanes[i] = _mm512_setzero_ps();
    for (int i = 0; i < rows; i++) {
        const float *row = scores + i * s->score_stride;
        __m512 one = _mm512_set1_ps(-FLT_MAX), two = one;
        for (int64_t key = 0; key < keys; key += STEP) {
            uint32_t mask = keys - key < STEP ? (1u << (keys - key)) - 1 : ~0u;
            one = _mm512_mask_max_ps(one, (__mmask16)mask, one, _mm512_load_ps(row + key));
            two = _mm512_mask_max_ps(two, (__mmask16)(mask >> 16), two, _mm512_load_ps(row + key + ROWS));
        }
        lanes[i] = _mm512_max_ps(one, two);
    }
    transpose((__m512i *)lanes);
    for (int i = 1; i < ROWS; i++) lanes[0] = _mm512_max_ps(lanes[0], lanes[i]);
    _mm512_storeu_ps(maxima, lanes[0]);
    for (int i = 0; i < ROWS; i++) lanes[i] = _mm512_setzero_ps();
    for (int i = 0; i < rows; i++) {
        const float *row = scores + i * s->score_stride;
        const __m512 maximum = _mm512_set1_ps(maxima[i]);
        __m512 sum = _mm512_setzero_ps();
        for (int64_t key = 0; key < keys; key += STEP) {
            uint32_t mask = keys - key < STEP ? (1u << (keys - key)) - 1 : ~0u;
            __m512 one = power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(row + key), maximum), factor));
            __m512 two = power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(row + key + ROWS), maximum), factor));
            one = _mm512_maskz_mov_ps((__mmask16)mask, one);
            two = _mm512_maskz_mov_ps((__mmask16)(mask >> 16), two);
            sum = _mm512_add_ps(sum, _mm512_add_ps(one, two));
            _mm512_store_si512(weights + i * s->weight_stride + key, (__m512i)_mm512_cvtne2ps_pbh(two, one));
        }
        lanes[i] = sum;
    }
    transpose((__m512i *)lanes);
    for (int i = 1; i < ROWS; i++) lanes[0] = _mm512_add_ps(lanes[0], lanes[i]);
    _mm512_storeu_ps(reciprocals, _mm512_div_ps(_mm512_set1_ps(1.0f), lanes[0]));
}

/* The weights' product with the values, divided by the weights' sums. */
ON_TILES static void multiply_values(const call *c, bfloat16 *context, const float *reciprocals, int64_t rows,
                                     int64_t padded, scratch *s) {
    int more = rows > ROWS;
    for (int64_t part = 0; part < c->width; part += STEP) {
        WRITTEN_FOR_TILES;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t key = 0; key < padded; key += STEP) {
            const bfloat16 *tiles = s->value_tiles + key * c->width + part * STEP;
            _tile_loadd(4, s->weights + key, s->weight_stride * 2);
            _tile_loadd(6, tiles, STEP * 2);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, tiles + TILE, STEP * 2);
            _tile_dpbf16ps(1, 4, 7);
            if (more) {
                _tile_loadd(5, s->weights + ROWS * s->weight_stride + key, s->weight_stride * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        store_sums(s->context, STEP, more);
        for (int64_t i = 0; i < rows; i++) {
            __m512 reciprocal = _mm512_set1_ps(reciprocals[i]);
            __m512 one = _mm512_mul_ps(_mm512_load_ps(s->context + i * STEP), reciprocal);
            __m512 two = _mm512_mul_ps(_mm512_load_ps(s->context + i * STEP + ROWS), reciprocal);
            _mm512_storeu_si512(context + i * c->context_stride + part, (__m512i)_mm512_cvtne2ps_pbh(two, one));
        }
    }
}

ON_TILES static void attend(const call *c, int64_t sequence, int64_t head, scratch *s) {
    int64_t first_query = c->query_offsets[sequence], queries = c->query_offsets[sequence + 1] - first_query;
    int64_t first_key = c->key_offsets[sequence], keys = c->key_offsets[sequence + 1] - first_key;
    int64_t padded = (keys + STEP - 1) / STEP * STEP;
    if (!queries) return;
    lay_out_keys(c, c->keys + first_key * c->key_stride + head * c->width, keys, s);
    lay_out_values(c, c->values + first_key * c->key_stride + head * c->width, keys, s);
    for (int64_t done = 0; done < queries; done += 2 * ROWS) {
        int64_t rows = queries - done < 2 * ROWS ? queries - done : 2 * ROWS;
        int64_t stride = c->query_stride;
        const bfloat16 *from = c->queries + (first_query + done) * stride + head * c->width;
        if (rows % ROWS) { /* whole tiles are loaded, and what lies below may not be ours */
            for (int64_t i = 0; i < 2 * ROWS; i++)
                for (int64_t part = 0; part < c->width; part += STEP)
                    _mm512_store_si512(s->queries + i * c->width + part, i < rows
                                                                             ? _mm512_loadu_si512(from + i * stride + part)
                                                                             : _mm512_setzero_si512());
            from = s->queries;
            stride = c->width;
        }
        float reciprocals[2 * ROWS];
        multiply_keys(from, stride, rows > ROWS, c->width, padded, s);
        for (int64_t i = 0; i < rows; i += ROWS)
            exponentiate(s->scores + i * s->score_stride, s->weights + i * s->weight_stride, reciprocals + i,
                         rows - i < ROWS ? (int)(rows - i) : ROWS, keys, c->scale, s);
        multiply_values(c, c->context + (first_query + done) * c->context_stride + head * c->width, reciprocals, rows,
                        padded, s);
    }
}

static size_t take(char **at, size_t bytes) { /* of a block of memory; each begins a cache line */
    size_t before = (size_t)*at;
    *at += (bytes + 63) / 64 * 64;
    return before;
}

ON_TILES static void work(void *argument) {
    call *c = argument;
    int64_t padded = (c->longest + STEP - 1) / STEP * STEP;
    scratch s = {.score_stride = padded + ROWS, .weight_stride = padded + STEP}; /* no power of two: cache lines collide */
    size_t sizes[] = {
        padded * c->width * 2,        padded * c->width * 2,         2 * ROWS * c->width * 2,
        2 * ROWS * s.score_stride * 4, 2 * ROWS * s.weight_stride * 2, 2 * ROWS * STEP * 4,
    };
    size_t bytes = 0;
    for (int i = 0; i < 6; i++) bytes += (sizes[i] + 63) / 64 * 64;
    char *memory = aligned_alloc(64, bytes), *at = memory;
    if (!memory) {
        c->failed = 1;
        return;
    }
    s.key_tiles = (bfloat16 *)take(&at, sizes[0]);
    s.value_tiles = (bfloat16 *)take(&at, sizes[1]);
    s.queries = (bfloat16 *)take(&at, sizes[2]);
    s.scores = (float *)take(&at, sizes[3]);
    s.weights = (bfloat16 *)take(&at, sizes[4]);
    s.context = (float *)take(&at, sizes[5]);

    tile_settings before = set_tiles(ROWS);
    for (int64_t item; (item = atomic_fetch_add(&c->next, 1)) < c->sequences * c->heads;)
        attend(c, item / c->heads, item % c->heads, &s);
    give_tiles_back(&before);
    free(memory);
}

int tile_attention(const void *queries, const void *keys, const void *values, void *context, int64_t query_stride,
                   int64_t key_stride, int64_t context_stride, const int32_t *query_offsets, const int32_t *key_offsets,
                   int64_t sequences, int64_t heads, int64_t width, parallel_runner parallel, int threads) {
    call c = {.queries = queries, .keys = keys, .values = values, .context = context, .query_stride = query_stride,
              .key_stride = key_stride, .context_stride = context_stride, .query_offsets = query_offsets,
              .key_offsets = key_offsets, .sequences = sequences, .heads = heads, .width = width,
              .scale = 1.0f / square_root((float)width)};
    if (query_offsets[0] || key_offsets[0]) return BAD_OFFSETS;
    for (int64_t i = 0; i < sequences; i++) {
        int64_t queries_here = query_offsets[i + 1] - query_offsets[i], keys_here = key_offsets[i + 1] - key_offsets[i];
        if (queries_here < 0 || keys_here < (queries_here > 0)) return BAD_OFFSETS;
        if (keys_here > c.longest) c.longest = keys_here;
    }
    if (threads > sequences * heads) threads = (int)(sequences * heads);
    run_on_threads(parallel, work, &c, threads);
    return c.failed ? NO_MEMORY : 0;
}

#endif
