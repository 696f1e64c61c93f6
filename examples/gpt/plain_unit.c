#include "plain_unit.h"

#include <errno.h>

#include "moments.h"

/* Sums and updates are shared out in pieces of this many elements. */
#define PIECE 4096
#define NORM_BLOCK 65536
#define SHARD_UNIT 256
#define TENSOR_ALIGNMENT 256 /* bytes */

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static enum number_format narrow_format_of(const struct unit *unit)
{
	for (unsigned i = 0; i < unit->tensor_count; i++)
		if (unit->tensors[i].format != NUMBER_FP32)
			return unit->tensors[i].format;
	return NUMBER_BF16;
}

/* 16 bits before fp32, tensors and sections aligned. A model has one 16-bit format. */
static void number_elements(struct plain_unit *unit)
{
	uint64_t next = 0;

	unit->narrow_format = narrow_format_of(unit->unit);
	for (int is_fp32 = 0; is_fp32 <= 1; is_fp32++) {
		for (unsigned i = 0; i < unit->unit->tensor_count; i++) {
			const struct tensor *tensor = &unit->unit->tensors[i];

			if ((tensor->format == NUMBER_FP32) != is_fp32)
				continue;
			next = round_up(next, TENSOR_ALIGNMENT / number_size(tensor->format));
			unit->offset[i] = next;
			next += tensor_elements(tensor);
		}
		next = round_up(next, SHARD_UNIT);
		if (!is_fp32)
			unit->narrow_elements = next;
	}
	unit->elements = next;
}

int plain_unit_open(const struct unit *unit, unsigned rank_count, unsigned stage, struct plain_unit *ret_unit)
{
	struct plain_unit new = { .unit = unit, .rank_count = rank_count, .sums_ranks_first = stage >= 2 };

	number_elements(&new);
	new.narrow = calloc(new.narrow_elements + 1, sizeof(uint16_t));
	new.master = calloc(new.elements, sizeof(float));
	for (unsigned slot = 0; slot < KERNEL_SLOTS; slot++)
		new.slots[slot] = calloc(new.elements, sizeof(float));
	new.sum = calloc(new.elements, sizeof(float));
	new.ranks = calloc(rank_count, sizeof(new.ranks[0]));
	if (!new.narrow || !new.master || !new.slots[0] || !new.slots[1] || !new.sum || !new.ranks) {
		plain_unit_close(&new);
		return -ENOMEM;
	}
	*ret_unit = new;
	return 0;
}

void plain_unit_close(struct plain_unit *unit)
{
	if (unit->ranks)
		plain_unit_next_step(unit);
	free(unit->ranks);
	free(unit->sum);
	for (unsigned slot = 0; slot < KERNEL_SLOTS; slot++)
		free(unit->slots[slot]);
	free(unit->master);
	free(unit->narrow);
	*unit = (struct plain_unit){ 0 };
}

static struct unit_view view_of(const struct plain_unit *unit, uint16_t *narrow, float *fp32)
{
	struct unit_view view = { { NULL } };

	for (unsigned i = 0; i < unit->unit->tensor_count; i++) {
		if (unit->unit->tensors[i].format == NUMBER_FP32)
			view.tensor[i] = fp32 + (unit->offset[i] - unit->narrow_elements);
		else
			view.tensor[i] = narrow + unit->offset[i];
	}
	return view;
}

struct unit_view plain_unit_parameters(const struct plain_unit *unit)
{
	return view_of(unit, unit->narrow, unit->master + unit->narrow_elements);
}

struct unit_view plain_unit_gradients(const struct plain_unit *unit, const struct plain_gradients *gradients)
{
	return view_of(unit, gradients->narrow, gradients->fp32);
}

struct plain_gradients *plain_gradients_new(const struct plain_unit *unit)
{
	struct plain_gradients *gradients = calloc(1, sizeof(*gradients));

	if (!gradients)
		return NULL;
	gradients->narrow = calloc(unit->narrow_elements + 1, sizeof(uint16_t));
	gradients->fp32 = calloc(unit->elements - unit->narrow_elements + 1, sizeof(float));
	if (!gradients->narrow || !gradients->fp32)
		return plain_gradients_free(gradients);
	return gradients;
}

struct plain_gradients *plain_gradients_free(struct plain_gradients *gradients)
{
	if (gradients) {
		free(gradients->fp32);
		free(gradients->narrow);
	}
	free(gradients);
	return NULL;
}

/* ---- Sums ---- */

struct summing {
	struct plain_unit *unit;
	unsigned rank; /* of a rank's own sum */
	bool is_first; /* the sum is copied, not added to */
};

static void load_gradients(const struct plain_unit *unit, const struct plain_gradients *gradients,
			   uint64_t first, uint64_t count, float *ret_values)
{
	uint64_t narrow_count =
		first < unit->narrow_elements ? smaller(count, unit->narrow_elements - first) : 0;

	update_kernels->widen(unit->narrow_format, narrow_count, gradients->narrow + first, ret_values);
	if (count > narrow_count)
		memcpy(ret_values + narrow_count,
		       gradients->fp32 + (first + narrow_count - unit->narrow_elements),
		       (count - narrow_count) * sizeof(float));
}

static void load_rank(const struct plain_unit *unit, unsigned rank, uint64_t first, uint64_t count,
		      float *ret_values)
{
	if (unit->sums_ranks_first)
		load_gradients(unit, unit->ranks[rank].first, first, count, ret_values);
	else
		memcpy(ret_values, unit->ranks[rank].sum + first, count * sizeof(float));
}

static bool is_absent(const struct plain_unit *unit, unsigned rank)
{
	return unit->sums_ranks_first ? !unit->ranks[rank].first : !unit->ranks[rank].sum;
}

/* Sums a piece over `ranks` ranks from rank `rank` on; false: all of them are absent, and contribute nothing.
 */
static bool sum_tree(const struct plain_unit *unit, unsigned rank, unsigned ranks, uint64_t first,
		     uint64_t count, float *ret_sum)
{
	float right[PIECE];
	unsigned half = 1;

	if (ranks == 1) {
		if (is_absent(unit, rank))
			return false;
		load_rank(unit, rank, first, count, ret_sum);
		return true;
	}
	while (half * 2 < ranks)
		half *= 2;
	if (!sum_tree(unit, rank, half, first, count, ret_sum))
		return sum_tree(unit, rank + half, ranks - half, first, count, ret_sum);
	if (sum_tree(unit, rank + half, ranks - half, first, count, right))
		update_kernels->add(count, right, ret_sum);
	return true;
}

static void sum_piece_over_ranks(void *argument, size_t index, void *scratch)
{
	const struct summing *summing = argument;
	struct plain_unit *unit = summing->unit;
	uint64_t first = index * PIECE, count = smaller(PIECE, unit->elements - first);
	float tree[PIECE];

	if (!sum_tree(unit, 0, unit->rank_count, first, count, tree))
		return;
	if (summing->is_first)
		memcpy(unit->sum + first, tree, count * sizeof(float));
	else
		update_kernels->add(count, tree, unit->sum + first);
}

static void sum_over_ranks(struct plain_unit *unit, struct team *team)
{
	struct summing summing = { .unit = unit, .is_first = !unit->has_sum };

	team_run(team, (unit->elements + PIECE - 1) / PIECE, sum_piece_over_ranks, &summing);
	unit->has_sum = true;
}

static void sum_piece_of_rank(void *argument, size_t index, void *scratch)
{
	const struct summing *summing = argument;
	const struct plain_unit *unit = summing->unit;
	const struct plain_rank *rank = &unit->ranks[summing->rank];
	uint64_t first = index * PIECE, count = smaller(PIECE, unit->elements - first);
	float values[PIECE];

	load_gradients(unit, rank->first, first, count, values);
	if (summing->is_first)
		memcpy(rank->sum + first, values, count * sizeof(float));
	else
		update_kernels->add(count, values, rank->sum + first);
}

static void drop_first(struct plain_rank *rank)
{
	struct plain_gradients *gradients = rank->first;

	rank->first = gradients->next;
	plain_gradients_free(gradients);
}

static int add_to_rank(struct plain_unit *unit, struct team *team, unsigned rank)
{
	struct summing summing = { .unit = unit, .rank = rank, .is_first = !unit->ranks[rank].sum };

	if (summing.is_first) {
		unit->ranks[rank].sum = malloc(unit->elements * sizeof(float));
		if (!unit->ranks[rank].sum)
			return -ENOMEM;
	}
	team_run(team, (unit->elements + PIECE - 1) / PIECE, sum_piece_of_rank, &summing);
	drop_first(&unit->ranks[rank]);
	return 0;
}

/* Adds the oldest micro-batch over the ranks. */
static void add_micro_batch(struct plain_unit *unit, struct team *team)
{
	sum_over_ranks(unit, team);
	for (unsigned rank = 0; rank < unit->rank_count; rank++) {
		if (unit->ranks[rank].first)
			drop_first(&unit->ranks[rank]);
	}
}

static unsigned ranks_present(const struct plain_unit *unit)
{
	unsigned count = 0;

	for (unsigned rank = 0; rank < unit->rank_count; rank++)
		count += !is_absent(unit, rank);
	return count;
}

int plain_unit_push(struct plain_unit *unit, struct team *team, unsigned rank,
		    struct plain_gradients *gradients)
{
	struct plain_rank *pushing = &unit->ranks[rank];

	if (pushing->first)
		pushing->last->next = gradients;
	else
		pushing->first = gradients;
	pushing->last = gradients;

	if (!unit->sums_ranks_first)
		return add_to_rank(unit, team, rank);
	if (ranks_present(unit) == unit->rank_count)
		add_micro_batch(unit, team);
	return 0;
}

/* ---- Norm ---- */

struct norm_block {
	uint64_t first, count;
	double sum;
};

struct norm {
	const struct plain_unit *unit;
	struct norm_block *blocks;
};

static void sum_block(void *argument, size_t index, void *scratch)
{
	const struct norm *norm = argument;
	struct norm_block *block = &norm->blocks[index];

	block->sum = update_kernels->sum_of_squares(block->count, norm->unit->sum + block->first);
}

/* Cuts each rank's shard into blocks. */
static size_t cut_blocks(const struct plain_unit *unit, struct norm_block *blocks)
{
	uint64_t units = unit->elements / SHARD_UNIT;
	size_t count = 0;

	for (unsigned rank = 0; rank < unit->rank_count; rank++) {
		uint64_t first = units * rank / unit->rank_count * SHARD_UNIT;
		uint64_t end = units * (rank + 1) / unit->rank_count * SHARD_UNIT;

		for (; first < end; first += NORM_BLOCK)
			blocks[count++] = (struct norm_block){ .first = first,
							       .count = smaller(NORM_BLOCK, end - first) };
	}
	return count;
}

int plain_unit_finish_sum(struct plain_unit *unit, struct team *team, double *sum)
{
	_cleanup_free_ struct norm_block *blocks =
		calloc(unit->elements / NORM_BLOCK + unit->rank_count, sizeof(*blocks));
	struct norm norm = { .unit = unit, .blocks = blocks };
	size_t count;

	if (!blocks)
		return -ENOMEM;
	while (unit->sums_ranks_first && ranks_present(unit) > 0)
		add_micro_batch(unit, team);
	if (!unit->sums_ranks_first && ranks_present(unit) > 0)
		sum_over_ranks(unit, team);
	if (!unit->has_sum)
		return 0;
	count = cut_blocks(unit, blocks);
	team_run(team, count, sum_block, &norm);
	for (size_t i = 0; i < count; i++)
		*sum += blocks[i].sum;
	return 0;
}

/* ---- Update ---- */

struct update {
	struct plain_unit *unit;
	update_kernel *kernel;
	const struct update_constants *constants;
	uint64_t first, count; /* of the tensor */
	enum tierd_moments moments;
	struct moment_keys keys;
};

static void write_parameters(struct plain_unit *unit, uint64_t first, uint64_t count)
{
	if (first < unit->narrow_elements)
		update_kernels->narrow(unit->narrow_format, count, unit->master + first,
				       unit->narrow + first);
}

static void update_piece(void *argument, size_t index, void *scratch)
{
	const struct update *update = argument;
	struct plain_unit *unit = update->unit;
	uint64_t first = update->first + index * PIECE, count = smaller(PIECE, update->count - index * PIECE);

	update->kernel(update->constants, count, unit->sum + first,
		       (float *const[]){ unit->slots[0] + first, unit->slots[1] + first },
		       unit->master + first);
	for (unsigned slot = 0; slot < KERNEL_SLOTS && update->moments == TIERD_MOMENTS_BF16; slot++)
		moments_round(update->keys, slot, index * PIECE, count, unit->slots[slot] + first);
	for (unsigned slot = 0; slot < KERNEL_SLOTS && update->moments == TIERD_MOMENTS_INT8; slot++)
		moments_code(update->keys, slot, index * PIECE, count, unit->slots[slot] + first);
	write_parameters(unit, first, count);
}

void plain_unit_update(struct plain_unit *unit, struct team *team, const struct options *options,
		       const struct update_constants constants[GROUP_COUNT])
{
	unit->updates++;
	for (unsigned i = 0; i < unit->unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->unit->tensors[i];
		struct update update = {
			.unit = unit,
			.kernel = update_kernels->updates[options->optimizer],
			.constants = &constants[tensor->group],
			.first = unit->offset[i],
			.count = tensor_elements(tensor),
			.moments = options->moments,
			.keys = moment_keys(options->seed, tensor->name, unit->updates),
		};

		team_run(team, (update.count + PIECE - 1) / PIECE, update_piece, &update);
	}
}

void plain_unit_next_step(struct plain_unit *unit)
{
	for (unsigned rank = 0; rank < unit->rank_count; rank++) {
		while (unit->ranks[rank].first)
			drop_first(&unit->ranks[rank]);
		free(unit->ranks[rank].sum);
		unit->ranks[rank].sum = NULL;
	}
	unit->has_sum = false;
}

void plain_unit_write(struct plain_unit *unit, unsigned tensor, uint64_t first, uint64_t count,
		      const float *values)
{
	memcpy(unit->master + unit->offset[tensor] + first, values, count * sizeof(float));
	write_parameters(unit, unit->offset[tensor] + first, count);
}
