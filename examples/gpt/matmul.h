/* Products of matrices, blocked for the caches. Each element is one chain of fma in the order of the depth,
 * so that neither threads nor blocks show in the result. */
#ifndef GPT_MATMUL_H
#define GPT_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

#include "number.h"
#include "team.h"

/* A factor: element (i, j) lies at i · stride + j, or, transposed, at j · stride + i. */
struct matrix {
	const void *data;
	enum number_format format;
	size_t stride;
	bool is_transposed;
};

/* c = a · b (+ bias, to each row), or c += a · b (+ bias); c[rows][columns], a[rows][depth],
 * b[depth][columns]. */
struct product {
	size_t rows, columns, depth;
	struct matrix a, b;
	void *c; /* may overlap neither a nor b */
	enum number_format c_format;
	size_t c_stride;
	bool is_added;	  /* c is fp32 */
	const void *bias; /* or NULL */
	enum number_format bias_format;
};

/* What a task needs to compute one block. */
size_t matmul_scratch_bytes(void);

/* Shares the blocks out among the team; its scratch must be that large. */
void matmul(struct team *team, const struct product *product);

/* On this thread alone. */
void matmul_alone(const struct product *product, void *scratch);

#endif
