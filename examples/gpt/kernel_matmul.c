#include "kernels.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define TILE_ROWS 12
#define LANES 16
typedef __m512 vector;
#define multiply_add(a, b, c) _mm512_fmadd_ps(a, b, c)
#define load(address) _mm512_loadu_ps(address)
#define load_bf16(address)                                                                                   \
	_mm512_castsi512_ps(_mm512_slli_epi32(                                                               \
		_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(address))), 16))
#define load_fp16(address) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(address)))
#define store(address, value) _mm512_storeu_ps(address, value)
#define broadcast(value) _mm512_set1_ps(value)
#define interleave_low(a, b)                                                                                 \
	__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define interleave_high(a, b)                                                                                \
	__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#include <immintrin.h>
#define TILE_ROWS 6
#define LANES 8
typedef __m256 vector;
#define multiply_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define load(address) _mm256_loadu_ps(address)
#define load_bf16(address)                                                                                   \
	_mm256_castsi256_ps(                                                                                 \
		_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(address))), 16))
#define load_fp16(address) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(address)))
#define store(address, value) _mm256_storeu_ps(address, value)
#define broadcast(value) _mm256_set1_ps(value)
#define interleave_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define interleave_high(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define TILE_ROWS 4
#define LANES 1
typedef float vector;
#define multiply_add(a, b, c) __builtin_fmaf(a, b, c)
#define load(address) (*(address))
#define load_bf16(address) number_from_bf16(*(address))
#define load_fp16(address) number_from_fp16(*(address))
#define store(address, value) (*(address) = (value))
#define broadcast(value) (value)
#endif

#define TILE_VECTORS 2
#define TILE_COLUMNS (TILE_VECTORS * LANES)

_Static_assert(TILE_ROWS <= KERNEL_MAX_TILE_ROWS && TILE_COLUMNS <= KERNEL_MAX_TILE_COLUMNS,
	       "tile too large");

/* The sums stay in registers; so the loops over them must unroll. */
static void tile(size_t depth, const float *a, const float *b, float *c)
{
	vector sum[TILE_ROWS][TILE_VECTORS];

#pragma GCC unroll 12
	for (size_t i = 0; i < TILE_ROWS; i++) {
#pragma GCC unroll 2
		for (size_t j = 0; j < TILE_VECTORS; j++)
			sum[i][j] = load(c + i * TILE_COLUMNS + j * LANES);
	}
	for (size_t k = 0; k < depth; k++) {
		vector right[TILE_VECTORS];

#pragma GCC unroll 2
		for (size_t j = 0; j < TILE_VECTORS; j++)
			right[j] = load(b + k * TILE_COLUMNS + j * LANES);
#pragma GCC unroll 12
		for (size_t i = 0; i < TILE_ROWS; i++) {
			vector left = broadcast(a[k * TILE_ROWS + i]);

#pragma GCC unroll 2
			for (size_t j = 0; j < TILE_VECTORS; j++)
				sum[i][j] = multiply_add(left, right[j], sum[i][j]);
		}
	}
#pragma GCC unroll 12
	for (size_t i = 0; i < TILE_ROWS; i++) {
#pragma GCC unroll 2
		for (size_t j = 0; j < TILE_VECTORS; j++)
			store(c + i * TILE_COLUMNS + j * LANES, sum[i][j]);
	}
}

static void load_run(const void *data, enum number_format format, size_t first, size_t count, float *out)
{
	const uint16_t *narrow = data;
	const float *wide = data;

	if (format == NUMBER_FP32) {
		for (size_t i = 0; i < count; i++)
			out[i] = wide[first + i];
	} else {
		for (size_t i = 0; i < count; i++)
			out[i] = number_from_narrow(narrow[first + i], format);
	}
}

static inline vector load_lanes(const void *data, enum number_format format, size_t first)
{
	if (format == NUMBER_FP32)
		return load((const float *)data + first);
	return format == NUMBER_BF16 ? load_bf16((const uint16_t *)data + first)
				     : load_fp16((const uint16_t *)data + first);
}

static void pack_columns(const void *data, enum number_format format, size_t stride, size_t count,
			 size_t depth, size_t width, float *out)
{
	for (size_t k = 0; k < depth; k++, out += width) {
		size_t i = 0;

		for (; i + LANES <= count; i += LANES)
			store(out + i, load_lanes(data, format, k * stride + i));
		for (; i < count; i++)
			out[i] = number_load(data, format, k * stride + i);
		for (; i < width; i++)
			out[i] = 0.0f;
	}
}

/* Interleaving the first half of the rows with the second, as often as halves can be halved, transposes them.
 */
static inline void transpose(vector rows[LANES])
{
#if LANES > 1
#pragma GCC unroll 4
	for (size_t stage = 1; stage < LANES; stage *= 2) {
		vector next[LANES];

#pragma GCC unroll 8
		for (size_t i = 0; i < LANES / 2; i++) {
			next[2 * i] = interleave_low(rows[i], rows[i + LANES / 2]);
			next[2 * i + 1] = interleave_high(rows[i], rows[i + LANES / 2]);
		}
#pragma GCC unroll 16
		for (size_t i = 0; i < LANES; i++)
			rows[i] = next[i];
	}
#endif
}

/* A square of LANES vectors and as much depth. Where the panel is narrower, a row ends in its successor's
 * place, which is written next. */
static void pack_square(const void *data, enum number_format format, size_t stride, size_t count,
			size_t width, float *out)
{
	vector rows[LANES];

#pragma GCC unroll 16
	for (size_t i = 0; i < LANES; i++)
		rows[i] = i < count ? load_lanes(data, format, i * stride) : broadcast(0.0f);
	transpose(rows);
#pragma GCC unroll 16
	for (size_t i = 0; i < LANES; i++)
		store(out + i * width, rows[i]);
}

static void pack_rest(const void *data, enum number_format format, size_t stride, size_t count, size_t depth,
		      size_t width, float *out)
{
	for (size_t k = 0; k < depth; k++) {
		for (size_t i = 0; i < width; i++)
			out[k * width + i] = i < count ? number_load(data, format, i * stride + k) : 0.0f;
	}
}

static void pack_rows(const void *data, enum number_format format, size_t stride, size_t count, size_t depth,
		      size_t width, float *out)
{
	size_t k = 0;

	for (; k + LANES <= depth; k += LANES) {
		for (size_t i = 0; i < width; i += LANES)
			pack_square(number_at((void *)data, format, i * stride + k), format, stride,
				    count > i ? count - i : 0, width, out + k * width + i);
	}
	pack_rest(number_at((void *)data, format, k), format, stride, count, depth - k, width,
		  out + k * width);
}

static void store_run(size_t count, const float *values, void *data, enum number_format format)
{
	uint16_t *narrow = data;
	float *wide = data;

	if (format == NUMBER_FP32) {
		for (size_t i = 0; i < count; i++)
			wide[i] = values[i];
	} else {
		for (size_t i = 0; i < count; i++)
			narrow[i] = number_to_narrow(values[i], format);
	}
}

static void finish(size_t count, const float *sums, const void *bias, enum number_format bias_format,
		   bool is_added, void *c, enum number_format c_format)
{
	float values[KERNEL_MAX_TILE_COLUMNS], more[KERNEL_MAX_TILE_COLUMNS];

	if (!bias && !is_added) {
		store_run(count, sums, c, c_format);
		return;
	}
	for (size_t i = 0; i < count; i++)
		values[i] = sums[i];
	if (bias) {
		load_run(bias, bias_format, 0, count, more);
		for (size_t i = 0; i < count; i++)
			values[i] += more[i];
	}
	if (is_added) {
		load_run(c, c_format, 0, count, more);
		for (size_t i = 0; i < count; i++)
			values[i] += more[i];
	}
	store_run(count, values, c, c_format);
}

const struct matmul_kernels KERNEL_TABLE(matmul_kernels) = {
	.tile_rows = TILE_ROWS,
	.tile_columns = TILE_COLUMNS,
	.tile = tile,
	.pack_rows = pack_rows,
	.pack_columns = pack_columns,
	.finish = finish,
};
