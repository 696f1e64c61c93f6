#include "matmul.h"

#include "kernels.h"

/* A block of c, and what it needs of a and b, lie in the second-level cache: multiples of every tile. */
#define BLOCK_ROWS 240
#define BLOCK_COLUMNS 256
#define BLOCK_DEPTH 256

struct block_scratch {
	float a[BLOCK_ROWS * BLOCK_DEPTH + KERNEL_SLACK];
	float b[BLOCK_COLUMNS * BLOCK_DEPTH + KERNEL_SLACK];
	float c[BLOCK_ROWS * BLOCK_COLUMNS]; /* tile after tile, each contiguous */
};

struct block {
	size_t row, column; /* of c, where it begins */
	size_t rows, columns;
};

size_t matmul_scratch_bytes(void)
{
	return sizeof(struct block_scratch);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Copies vectors of a matrix (rows of a, columns of b), cut at depth k, into panels of the given width. */
static void pack(const struct matrix *matrix, bool are_rows, size_t first, size_t count, size_t k,
		 size_t depth, size_t width, float *out)
{
	for (size_t i = 0; i < count; i += width, out += width * depth) {
		size_t vectors = smaller(width, count - i);

		if (are_rows)
			matmul_kernels->pack_rows(number_at((void *)matrix->data, matrix->format,
							    (first + i) * matrix->stride + k),
						  matrix->format, matrix->stride, vectors, depth, width, out);
		else
			matmul_kernels->pack_columns(number_at((void *)matrix->data, matrix->format,
							       k * matrix->stride + first + i),
						     matrix->format, matrix->stride, vectors, depth, width,
						     out);
	}
}

static size_t tiles_down(const struct block *block)
{
	return (block->rows + matmul_kernels->tile_rows - 1) / matmul_kernels->tile_rows;
}

static size_t tiles_across(const struct block *block)
{
	return (block->columns + matmul_kernels->tile_columns - 1) / matmul_kernels->tile_columns;
}

static size_t tile_elements(void)
{
	return matmul_kernels->tile_rows * matmul_kernels->tile_columns;
}

static void clear_tiles(const struct block *block, float *sums)
{
	memset(sums, 0, tiles_down(block) * tiles_across(block) * tile_elements() * sizeof(float));
}

static void multiply_tiles(const struct block *block, size_t depth, struct block_scratch *scratch)
{
	size_t a_panel = matmul_kernels->tile_rows * depth, b_panel = matmul_kernels->tile_columns * depth;
	float *sums = scratch->c;

	for (size_t j = 0; j < tiles_across(block); j++) {
		for (size_t i = 0; i < tiles_down(block); i++, sums += tile_elements())
			matmul_kernels->tile(depth, scratch->a + i * a_panel, scratch->b + j * b_panel, sums);
	}
}

static void store_run(const struct product *product, size_t row, size_t column, size_t count,
		      const float *sums)
{
	const void *bias = product->bias;

	if (bias)
		bias = number_at((void *)bias, product->bias_format, column);
	matmul_kernels->finish(count, sums, bias, product->bias_format, product->is_added,
			       number_at(product->c, product->c_format, row * product->c_stride + column),
			       product->c_format);
}

static void store_tiles(const struct product *product, const struct block *block, const float *sums)
{
	size_t tile_rows = matmul_kernels->tile_rows, tile_columns = matmul_kernels->tile_columns;

	for (size_t j = 0; j < block->columns; j += tile_columns) {
		for (size_t i = 0; i < block->rows; i += tile_rows) {
			for (size_t row = 0; row < tile_rows && i + row < block->rows; row++)
				store_run(product, block->row + i + row, block->column + j,
					  smaller(tile_columns, block->columns - j),
					  sums + row * tile_columns);
			sums += tile_elements();
		}
	}
}

static size_t blocks_across(const struct product *product)
{
	return (product->columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
}

static size_t blocks_down(const struct product *product)
{
	return (product->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static void compute_block(void *argument, size_t index, void *block_scratch)
{
	const struct product *product = argument;
	struct block_scratch *scratch = block_scratch;
	struct block block = {
		.row = index % blocks_down(product) * BLOCK_ROWS,
		.column = index / blocks_down(product) * BLOCK_COLUMNS,
	};

	block.rows = smaller(BLOCK_ROWS, product->rows - block.row);
	block.columns = smaller(BLOCK_COLUMNS, product->columns - block.column);
	clear_tiles(&block, scratch->c);
	for (size_t k = 0; k < product->depth; k += BLOCK_DEPTH) {
		size_t depth = smaller(BLOCK_DEPTH, product->depth - k);

		pack(&product->a, !product->a.is_transposed, block.row, block.rows, k, depth,
		     matmul_kernels->tile_rows, scratch->a);
		pack(&product->b, product->b.is_transposed, block.column, block.columns, k, depth,
		     matmul_kernels->tile_columns, scratch->b);
		multiply_tiles(&block, depth, scratch);
	}
	store_tiles(product, &block, scratch->c);
}

void matmul(struct team *team, const struct product *product)
{
	team_run(team, blocks_down(product) * blocks_across(product), compute_block, (void *)product);
}

void matmul_alone(const struct product *product, void *scratch)
{
	for (size_t i = 0; i < blocks_down(product) * blocks_across(product); i++)
		compute_block((void *)product, i, scratch);
}
