#include "kernels.h"

#include <math.h>

#include "functions.h"

/* Sums over a row run in this many interleaved lanes, which are added in order at the end: the same order for
 * every vector length. */
#define LANES 16

static float sum_lanes(const float lanes[LANES])
{
	float sum = 0.0f;

	for (size_t i = 0; i < LANES; i++)
		sum += lanes[i];
	return sum;
}

/* ---- Layer norm ---- */

static void norm_statistics(size_t width, const float *x, float *ret_mean, float *ret_inverse_deviation)
{
	float sums[LANES] = { 0 }, squares[LANES] = { 0 };
	float mean;

	for (size_t i = 0; i < width; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			sums[j] += x[i + j];
	}
	mean = sum_lanes(sums) / (float)width;
	for (size_t i = 0; i < width; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			squares[j] += (x[i + j] - mean) * (x[i + j] - mean);
	}
	*ret_mean = mean;
	*ret_inverse_deviation = 1.0f / sqrtf(sum_lanes(squares) / (float)width + 1e-5f);
}

static void norm(size_t width, const float *x, float mean, float inverse_deviation, const float *weight,
		 const float *bias, float *y)
{
	for (size_t i = 0; i < width; i++)
		y[i] = (x[i] - mean) * inverse_deviation * weight[i] + bias[i];
}

static void norm_backward(size_t width, const float *x, float mean, float inverse_deviation,
			  const float *weight, const float *dy, float *dx)
{
	float sums[LANES] = { 0 }, products[LANES] = { 0 };
	float sum, product;

	for (size_t i = 0; i < width; i += LANES) {
		for (size_t j = 0; j < LANES; j++) {
			float d = dy[i + j] * weight[i + j];

			sums[j] += d;
			products[j] += d * ((x[i + j] - mean) * inverse_deviation);
		}
	}
	sum = sum_lanes(sums) / (float)width;
	product = sum_lanes(products) / (float)width;
	for (size_t i = 0; i < width; i++) {
		float normal = (x[i] - mean) * inverse_deviation;

		dx[i] += (dy[i] * weight[i] - sum - normal * product) * inverse_deviation;
	}
}

static void norm_gradients(size_t rows, size_t stride, size_t count, const float *x, const float *mean,
			   const float *inverse_deviation, const float *dy, float *dweight, float *dbias)
{
	for (size_t i = 0; i < count; i++)
		dweight[i] = dbias[i] = 0.0f;
	for (size_t row = 0; row < rows; row++) {
		const float *x_row = x + row * stride, *dy_row = dy + row * stride;

		for (size_t i = 0; i < count; i++) {
			dweight[i] += dy_row[i] * ((x_row[i] - mean[row]) * inverse_deviation[row]);
			dbias[i] += dy_row[i];
		}
	}
}

static void sum_rows(size_t rows, size_t stride, size_t count, const float *x, float *sum)
{
	for (size_t i = 0; i < count; i++)
		sum[i] = 0.0f;
	for (size_t row = 0; row < rows; row++) {
		for (size_t i = 0; i < count; i++)
			sum[i] += x[row * stride + i];
	}
}

/* ---- GELU ---- */

static void gelu(size_t count, const float *x, float *y)
{
	for (size_t i = 0; i < count; i++)
		y[i] = gelu_of(x[i]);
}

static void gelu_backward(size_t count, const float *x, float *dy)
{
	for (size_t i = 0; i < count; i++)
		dy[i] *= gelu_slope(x[i]);
}

/* ---- Softmax ---- */

static float largest(size_t count, const float *x)
{
	float lanes[LANES], result;
	size_t i = 0;

	for (size_t j = 0; j < LANES; j++)
		lanes[j] = x[0];
	for (; i + LANES <= count; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
	}
	result = lanes[0];
	for (size_t j = 1; j < LANES; j++)
		result = lanes[j] > result ? lanes[j] : result;
	for (; i < count; i++)
		result = x[i] > result ? x[i] : result;
	return result;
}

static void softmax(size_t count, size_t padded, float scale, float *x)
{
	float maximum = largest(count, x), lanes[LANES] = { 0 };
	size_t used = (count + LANES - 1) / LANES * LANES;
	float factor;

	for (size_t i = count; i < padded; i++)
		x[i] = maximum;
	for (size_t i = 0; i < used; i++)
		x[i] = exponential((x[i] - maximum) * scale);
	for (size_t i = count; i < padded; i++)
		x[i] = 0.0f;
	for (size_t i = 0; i < used; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lanes[j] += x[i + j];
	}
	factor = 1.0f / sum_lanes(lanes);
	for (size_t i = 0; i < used; i++)
		x[i] *= factor;
}

static void softmax_backward(size_t padded, float scale, const float *p, float *dp)
{
	float lanes[LANES] = { 0 }, sum;

	for (size_t i = 0; i < padded; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lanes[j] += p[i + j] * dp[i + j];
	}
	sum = sum_lanes(lanes);
	for (size_t i = 0; i < padded; i++)
		dp[i] = p[i] * (dp[i] - sum) * scale;
}

const struct layer_kernels KERNEL_TABLE(layer_kernels) = {
	.norm_statistics = norm_statistics,
	.norm = norm,
	.norm_backward = norm_backward,
	.norm_gradients = norm_gradients,
	.sum_rows = sum_rows,
	.gelu = gelu,
	.gelu_backward = gelu_backward,
	.softmax = softmax,
	.softmax_backward = softmax_backward,
};
