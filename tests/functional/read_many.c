/* Values of many tensors by one call: those that calls one by one bring, of a rank and of a reader, also if
 * they take more than one window, or are more pieces than a request has. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "crash_support.h"

#define UNITS 40
#define TENSORS 6
#define STATES 4
#define READS (UNITS * TENSORS * STATES)

static const struct shape {
	uint32_t format;
	uint64_t elements;
	bool is_frozen;
} shapes[TENSORS] = { { TIERD_BF16, 333, false }, { TIERD_FP32, 7, false },  { TIERD_FP16, 1, false },
		      { TIERD_BF16, 0, false },	  { TIERD_BYTES, 51, true }, { TIERD_FP32, 900, true } };
static const char *const states[STATES] = { "parameter", "master", "exp_avg", "v" };

/* As a later version of tierd.h may have it. */
struct larger {
	struct tierd_read read;
	uint64_t unknown;
};

static void define(struct tierd_job *job)
{
	char names[TENSORS][16], name[16];
	static const char bytes[51] = "bytes of any meaning";

	for (unsigned unit = 0; unit < UNITS; unit++) {
		struct tierd_tensor tensors[TENSORS];

		snprintf(name, sizeof(name), "u%u", unit);
		for (unsigned i = 0; i < TENSORS; i++) {
			snprintf(names[i], sizeof(names[i]), "u%u.%u", unit, i);
			tensors[i] = (struct tierd_tensor)TIERD_TENSOR_INIT;
			tensors[i].name = names[i];
			tensors[i].format = shapes[i].format;
			tensors[i].dimensions = 1;
			tensors[i].shape[0] = shapes[i].elements * (unit == 7 && i == 0 ? 3000 : 1);
			tensors[i].is_frozen = shapes[i].is_frozen;
			tensors[i].initializer = shapes[i].format == TIERD_BYTES ? TIERD_INITIALIZE_NONE
										 : TIERD_INITIALIZE_NORMAL;
			tensors[i].b = 1;
		}
		OK(tierd_unit_define(job, name, tensors, TENSORS, NULL));
	}
	for (unsigned unit = 0; unit < UNITS; unit++)
		OK(tierd_tensor_write(job, unit, 4, 0, 51, bytes, false));
}

static uint64_t elements_of(unsigned unit, unsigned tensor)
{
	return shapes[tensor].elements * (unit == 7 && tensor == 0 ? 3000 : 1);
}

/* What of all there is, all of it. */
static size_t make_reads(struct larger *reads)
{
	size_t count = 0;

	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned tensor = 0; tensor < TENSORS; tensor++)
			for (unsigned state = 0; state < (shapes[tensor].is_frozen ? 1 : STATES); state++) {
				struct larger *one = &reads[count++];
				uint64_t elements = elements_of(unit, tensor);

				*one = (struct larger){ .read = TIERD_READ_INIT };
				one->read.size = sizeof(*one);
				one->read.unit = unit;
				one->read.tensor = tensor;
				one->read.state = states[state];
				one->read.count = elements;
				one->read.ret_data = calloc(elements + 1, 4);
				REQUIRE(one->read.ret_data);
			}
	return count;
}

static void expect_same(struct tierd_job *job, const struct larger *reads, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct tierd_read *read = &reads[i].read;
		char *values = calloc(read->count + 1, 4);

		REQUIRE(values);
		OK(tierd_tensor_read(job, read->unit, read->tensor, read->state, 0, read->count, values));
		REQUIRE(memcmp(values, read->ret_data, (read->count + 1) * 4) == 0);
		free(values);
		memset(read->ret_data, 0, (read->count + 1) * 4);
	}
}

/* Two of three go to memory that tierd writes to. Returns it, with what was read. */
static char *read_to_memory(struct tierd_job *job, struct tierd_reader *reader, struct larger *reads,
			    size_t count, size_t *ret_size)
{
	static void *own[READS];
	size_t size = 64, used = 64;
	void *memory = NULL;

	for (size_t i = 0; i < count; i++)
		size += (reads[i].read.count * 4 + 67) / 64 * 64;
	OK(tierd_reader_memory(reader, size, &memory));
	FAILS(tierd_reader_memory(reader, size, &memory), -EBUSY, "has memory of its client's already");
	for (size_t i = 0; i < count; i++) {
		own[i] = reads[i].read.ret_data;
		if (i % 3 == 0)
			continue;
		/* Bytes can begin anywhere, and come through the window then. */
		reads[i].read.ret_data = (char *)memory + used + (i % 5 == 0 && reads[i].read.tensor == 4);
		used += (reads[i].read.count * 4 + 67) / 64 * 64;
	}
	OK(tierd_reader_read_many(reader, &reads[0].read, count));
	expect_same(job, reads, count);
	for (size_t i = 0; i < count; i++) {
		const struct tierd_read *read = &reads[i].read;

		OK(tierd_reader_read(reader, read->unit, read->tensor, read->state, 0, read->count,
				     read->ret_data));
	}
	expect_same(job, reads, count);
	OK(tierd_reader_read_many(reader, &reads[0].read, count));
	for (size_t i = 0; i < count; i++)
		reads[i].read.ret_data = own[i];
	*ret_size = size;
	return memory;
}

/* It outlives its reader, and goes on with another one, at its address and with its values. */
static void expect_memory_stays(struct tierd_node *node, char *memory, size_t size)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;
	char *values = malloc(size);
	void *place = memory;

	REQUIRE(values);
	memcpy(values, memory, size);
	options.name = "many";
	OK(tierd_reader_open(node, &options, &reader));
	OK(tierd_reader_memory(reader, size, &place));
	REQUIRE(place == memory && memcmp(values, memory, size) == 0);
	memset(memory, 0, size);
	OK(tierd_reader_read(reader, 7, 0, "master", 0, 333 * 3000, memory + 64));
	OK(tierd_reader_read(reader, 7, 0, "master", 0, 333 * 3000, values + 64));
	REQUIRE(memcmp(values + 64, memory + 64, 333 * 3000 * 4) == 0);
	OK(tierd_reader_close(reader));
	REQUIRE(munmap(memory, size) == 0);
	free(values);
}

static void expect_refusals(struct tierd_job *job, struct tierd_reader *reader)
{
	struct tierd_read read = TIERD_READ_INIT, two[2] = { TIERD_READ_INIT, TIERD_READ_INIT };
	struct larger larger = { .read = TIERD_READ_INIT, .unknown = 1 };
	char values[4000];

	OK(tierd_read_many(job, NULL, 0));
	OK(tierd_reader_read_many(reader, NULL, 0));
	read.count = 334;
	read.ret_data = values;
	FAILS(tierd_read_many(job, &read, 1), -EINVAL,
	      "elements 0 to 334 are not within tensor 0 of unit \"u0\"");
	FAILS(tierd_reader_read_many(reader, &read, 1), -EINVAL, "elements 0 to 334 are not within");
	read.count = 3;
	read.state = "momentum";
	FAILS(tierd_read_many(job, &read, 1), -ENODATA, "there is no state \"momentum\"");
	FAILS(tierd_reader_read_many(reader, &read, 1), -ENODATA, "momentum");
	read.state = "m";
	read.tensor = 5;
	FAILS(tierd_read_many(job, &read, 1), -ENODATA, "\"u0.5\" is frozen");
	two[1].unit = UNITS;
	FAILS(tierd_read_many(job, two, 2), -EINVAL, "has no unit 40");
	two[1].size += 8;
	FAILS(tierd_read_many(job, two, 2), -EINVAL, "read 1 has a wrong size");
	larger.read.size = sizeof(larger);
	FAILS(tierd_read_many(job, &larger.read, 1), -EINVAL, "read 0 has a wrong size");
}

static void read_all(struct tierd_node *node, uint32_t placement)
{
	struct tierd_job_options options = support_options("many", 0, 1);
	struct tierd_reader_options of_reader = TIERD_READER_OPTIONS_INIT;
	struct tierd_rates rates = support_rates(0.125f);
	static struct larger reads[READS];
	struct tierd_reader *reader;
	struct tierd_view view;
	struct tierd_job *job;
	size_t count, memory_size;
	char *memory;

	options.parameter_placement = options.optimizer_placement = placement;
	OK(tierd_job_open(node, &options, &job));
	define(job);
	OK(tierd_job_ready(job, -1, NULL));
	for (unsigned unit = 0; unit < UNITS; unit++) {
		OK(tierd_gradients(job, unit, &view));
		support_fill(tierd_at(&view, 0), elements_of(unit, 0), true, unit + 1);
		OK(tierd_push(job, unit));
	}
	count = make_reads(reads);
	OK(tierd_step(job, &rates, NULL));
	OK(tierd_read_many(job, &reads[0].read, count));
	expect_same(job, reads, count);
	of_reader.name = "many";
	OK(tierd_reader_open(node, &of_reader, &reader));
	OK(tierd_reader_read_many(reader, &reads[0].read, count));
	expect_same(job, reads, count);
	expect_refusals(job, reader);
	memory = read_to_memory(job, reader, reads, count, &memory_size);
	OK(tierd_reader_close(reader));
	expect_memory_stays(node, memory, memory_size);
	for (size_t i = 0; i < count; i++)
		free(reads[i].read.ret_data);
	OK(tierd_job_detach(job));
	support_drop("many");
}

int main(void)
{
	struct tierd_node *node = support_connect();

	read_all(node, TIERD_PLACE_NVME);
	read_all(node, TIERD_PLACE_HOST);
	tierd_disconnect(node);
	return 0;
}
