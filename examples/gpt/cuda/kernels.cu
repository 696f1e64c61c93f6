/* The kernels of a GPU for all of a layer but its products of matrices. Each sum has one order, whatever the
 * GPU does at once; the functions are the processors'. */
#include "common/cuda_code.h"

#include "examples/gpt/cuda/arguments.h"
#include "examples/gpt/functions.h"

#define TOKENS 256

/* What a lane has of an array with one element for each. */
#define HERE(lane) ((lane) % LANES_HERE)

/* The sum of what the lanes have, in each of them: halves are added to each other. */
static inline float warp_sum(const float *values)
{
#ifdef __CUDACC__
	float sum = values[0];

	UNROLL
	for (unsigned distance = WARP_LANES / 2; distance > 0; distance /= 2)
		sum += __shfl_xor_sync(~0U, sum, distance);
	return sum;
#else
	float sums[WARP_LANES];

	memcpy(sums, values, sizeof(sums));
	for (unsigned distance = WARP_LANES / 2; distance > 0; distance /= 2)
		for (unsigned lane = 0; lane < distance; lane++)
			sums[lane] += sums[lane + distance];
	return sums[0];
#endif
}

static inline float warp_largest(const float *values)
{
	float largest = values[0];

	for (unsigned i = 1; i < LANES_HERE; i++)
		largest = values[i] > largest ? values[i] : largest;
#ifdef __CUDACC__
	UNROLL
	for (unsigned distance = WARP_LANES / 2; distance > 0; distance /= 2) {
		float other = __shfl_xor_sync(~0U, largest, distance);

		largest = other > largest ? other : largest;
	}
#endif
	return largest;
}

/* ---- Layer norm ---- */

extern "C" __global__ void gpt_norm(const __grid_constant__ struct gpt_norm with)
{
	size_t row = warp_number();
	const float *x = with.x + row * with.width;
	float sums[LANES_HERE] = {}, squares[LANES_HERE] = {}, mean, inverse_deviation;

	if (row >= with.rows)
		return;
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.width; i += WARP_LANES)
			sums[HERE(lane)] += x[i];
	mean = warp_sum(sums) / (float)with.width;
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.width; i += WARP_LANES)
			squares[HERE(lane)] += (x[i] - mean) * (x[i] - mean);
	inverse_deviation = 1.0f / sqrtf(warp_sum(squares) / (float)with.width + 1e-5f);
	FOREACH_LANE (lane) {
		for (size_t i = lane; i < with.width; i += WARP_LANES)
			number_store(with.y, with.format, row * with.width + i,
				     (x[i] - mean) * inverse_deviation * with.weight[i] + with.bias[i]);
		if (lane == 0) {
			with.mean[row] = mean;
			with.inverse_deviation[row] = inverse_deviation;
		}
	}
}

extern "C" __global__ void gpt_norm_backward(const __grid_constant__ struct gpt_norm_backward with)
{
	size_t row = warp_number();
	const float *x = with.x + row * with.width, *dy = with.y_gradient + row * with.width;
	float *dx = with.x_gradient + row * with.width;
	float sums[LANES_HERE] = {}, products[LANES_HERE] = {}, mean, inverse_deviation, sum, product;

	if (row >= with.rows)
		return;
	mean = with.mean[row];
	inverse_deviation = with.inverse_deviation[row];
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.width; i += WARP_LANES) {
			float d = dy[i] * with.weight[i];

			sums[HERE(lane)] += d;
			products[HERE(lane)] += d * ((x[i] - mean) * inverse_deviation);
		}
	sum = warp_sum(sums) / (float)with.width;
	product = warp_sum(products) / (float)with.width;
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.width; i += WARP_LANES) {
			float normal = (x[i] - mean) * inverse_deviation;

			dx[i] += (dy[i] * with.weight[i] - sum - normal * product) * inverse_deviation;
		}
}

/* ---- Sums over rows ---- */

extern "C" __global__ void gpt_column_sums(const __grid_constant__ struct gpt_column_sums with)
{
	size_t across = (with.columns + WARP_LANES - 1) / WARP_LANES, chunk = warp_number() / across;
	size_t first = chunk * GPT_CHUNK_ROWS, end = first + GPT_CHUNK_ROWS;

	if (first >= with.rows)
		return;
	end = end < with.rows ? end : with.rows;
	FOREACH_LANE (lane) {
		size_t column = warp_number() % across * WARP_LANES + lane;
		float sum = 0.0f, product = 0.0f;

		if (column >= with.columns)
			continue;
		UNROLL_BY(8)
		for (size_t row = first; row < end; row++) {
			float value = number_load(with.values, with.format, row * with.columns + column);

			sum += value;
			if (with.products)
				product += value * ((with.x[row * with.columns + column] - with.mean[row]) *
						    with.inverse_deviation[row]);
		}
		with.sums[chunk * with.columns + column] = sum;
		if (with.products)
			with.products[chunk * with.columns + column] = product;
	}
}

extern "C" __global__ void gpt_column_totals(const __grid_constant__ struct gpt_column_totals with)
{
	FOREACH_LANE (lane) {
		size_t column = warp_number() * WARP_LANES + lane;
		float sum = 0.0f;

		if (column >= with.columns)
			continue;
		UNROLL_BY(16)
		for (size_t chunk = 0; chunk < with.chunks; chunk++)
			sum += with.sums[chunk * with.columns + column];
		number_store(with.totals, with.format, column, sum);
	}
}

/* ---- One by one ---- */

extern "C" __global__ void gpt_finish(const __grid_constant__ struct gpt_finish with)
{
	FOREACH_LANE (lane) {
		size_t i = warp_number() * WARP_LANES + lane;
		float y;

		if (i >= with.elements)
			continue;
		y = with.x[i];
		if (with.bias)
			y += number_load(with.bias, with.bias_format, i % with.width);
		if (with.added)
			y += with.added[i];
		number_store(with.y, with.format, i, y);
	}
}

extern "C" __global__ void gpt_gelu(const __grid_constant__ struct gpt_gelu with)
{
	FOREACH_LANE (lane) {
		size_t i = warp_number() * WARP_LANES + lane;

		if (i >= with.elements)
			continue;
		if (with.bias)
			with.x[i] += number_load(with.bias, with.format, i % with.width);
		number_store(with.y, with.format, i, gelu_of(with.x[i]));
	}
}

extern "C" __global__ void gpt_gelu_backward(const __grid_constant__ struct gpt_gelu_backward with)
{
	FOREACH_LANE (lane) {
		size_t i = warp_number() * WARP_LANES + lane;

		if (i < with.elements)
			number_store(with.x_gradient, with.format, i,
				     with.y_gradient[i] * gelu_slope(with.x[i]));
	}
}

/* ---- Softmax ---- */

extern "C" __global__ void gpt_softmax(const __grid_constant__ struct gpt_softmax with)
{
	size_t row = warp_number(), count = row % with.length + 1;
	const float *x = with.x + row * with.length;
	float largest[LANES_HERE], sums[LANES_HERE] = {}, maximum, factor;

	if (row >= with.rows)
		return;
	FOREACH_LANE (lane) {
		largest[HERE(lane)] = x[0];
		for (size_t i = lane; i < count; i += WARP_LANES)
			largest[HERE(lane)] = x[i] > largest[HERE(lane)] ? x[i] : largest[HERE(lane)];
	}
	maximum = warp_largest(largest);
	FOREACH_LANE (lane)
		for (size_t i = lane; i < count; i += WARP_LANES)
			sums[HERE(lane)] += exponential((x[i] - maximum) * with.scale);
	factor = 1.0f / warp_sum(sums);
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.length; i += WARP_LANES)
			number_store(with.y, with.format, row * with.length + i,
				     i < count ? exponential((x[i] - maximum) * with.scale) * factor : 0.0f);
}

extern "C" __global__ void gpt_softmax_backward(const __grid_constant__ struct gpt_softmax_backward with)
{
	size_t row = warp_number(), count = row % with.length + 1, first = row * with.length;
	float sums[LANES_HERE] = {}, sum;

	if (row >= with.rows)
		return;
	FOREACH_LANE (lane)
		for (size_t i = lane; i < count; i += WARP_LANES)
			sums[HERE(lane)] +=
				number_load(with.y, with.format, first + i) * with.y_gradient[first + i];
	sum = warp_sum(sums);
	FOREACH_LANE (lane)
		for (size_t i = lane; i < with.length; i += WARP_LANES)
			number_store(with.x_gradient, with.format, first + i,
				     i < count ? number_load(with.y, with.format, first + i) *
							 (with.y_gradient[first + i] - sum) * with.scale
					       : 0.0f);
}

/* ---- The two ends ---- */

static inline uint8_t byte_at(const uint8_t *text, size_t length, size_t row, size_t ahead)
{
	return text[row / length * (length + 1) + row % length + ahead];
}

extern "C" __global__ void gpt_embed(const __grid_constant__ struct gpt_embed with)
{
	FOREACH_LANE (lane) {
		size_t i = warp_number() * WARP_LANES + lane, row = i / with.width, column = i % with.width;
		size_t token, position;

		if (row >= with.rows)
			continue;
		token = byte_at(with.text, with.length, row, 0);
		position = row % with.length;
		with.x[i] = number_load(with.token, with.format, token * with.width + column) +
			    number_load(with.position, with.format, position * with.width + column);
	}
}

extern "C" __global__ void gpt_embed_backward(const __grid_constant__ struct gpt_embed_backward with)
{
	size_t across = (with.width + WARP_LANES - 1) / WARP_LANES, vector = warp_number() / across;
	size_t step = vector < TOKENS ? 1 : with.length;

	if (vector >= TOKENS + with.length)
		return;
	FOREACH_LANE (lane) {
		size_t column = warp_number() % across * WARP_LANES + lane;
		float sum;

		if (column >= with.width)
			continue;
		sum = vector < TOKENS ? with.head_gradient[vector * with.width + column] : 0.0f;
		for (size_t row = vector < TOKENS ? 0 : vector - TOKENS; row < with.rows; row += step)
			if (vector >= TOKENS || byte_at(with.text, with.length, row, 0) == vector)
				sum += with.x_gradient[row * with.width + column];
		if (vector < TOKENS)
			number_store(with.token, with.format, vector * with.width + column, sum);
		else
			number_store(with.position, with.format, (vector - TOKENS) * with.width + column,
				     sum);
	}
}

extern "C" __global__ void gpt_loss(const __grid_constant__ struct gpt_loss with)
{
	size_t row = warp_number();
	float *logits = with.logits + row * TOKENS;
	float values[LANES_HERE][TOKENS / WARP_LANES], largest[LANES_HERE], sums[LANES_HERE] = {};
	float maximum, factor;

	if (row >= with.rows)
		return;
	FOREACH_LANE (lane) {
		largest[HERE(lane)] = logits[lane];
		UNROLL
		for (unsigned i = 0; i < TOKENS / WARP_LANES; i++) {
			float value = logits[i * WARP_LANES + lane];

			values[HERE(lane)][i] = value;
			largest[HERE(lane)] = value > largest[HERE(lane)] ? value : largest[HERE(lane)];
		}
	}
	maximum = warp_largest(largest);
	FOREACH_LANE (lane) {
		UNROLL
		for (unsigned i = 0; i < TOKENS / WARP_LANES; i++) {
			values[HERE(lane)][i] = exponential(values[HERE(lane)][i] - maximum);
			sums[HERE(lane)] += values[HERE(lane)][i];
		}
	}
	/* All lanes have read the logits when they know this. */
	factor = 1.0f / warp_sum(sums);
	FOREACH_LANE (lane) {
		unsigned target = byte_at(with.text, with.length, row, 1);

		UNROLL
		for (unsigned i = 0; i < TOKENS / WARP_LANES; i++) {
			unsigned token = i * WARP_LANES + lane;
			float probability = values[HERE(lane)][i] * factor;

			if (token == target)
				with.losses[row] = -logf(probability);
			number_store(logits, with.format, token,
				     (token == target ? probability - 1.0f : probability) * with.factor);
		}
	}
}
