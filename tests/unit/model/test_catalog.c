/* The catalog: what a definition must be, how two are compared, how units are packed, what has been written.
 */
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/model/catalog.h"
#include "daemon/model/options.h"
#include "daemon/residency/residency.h"
#include "tests/unit/test.h"

#define MAX_TENSORS 4

static struct catalog catalog;
static uint32_t unit_maximum = CATALOG_MAX_UNITS, tensor_maximum = CATALOG_MAX_TENSORS;
static uint32_t name_maximum = WIRE_MAX_NAME, dimension_maximum = WIRE_MAX_DIMENSIONS;
static char message[512];

/* A definition and all that it points to. */
struct draft {
	Tierd__Wire__UnitDefine define;
	Tierd__Wire__Tensor tensors[MAX_TENSORS], *pointers[MAX_TENSORS];
	uint64_t shapes[MAX_TENSORS][9];
	char names[MAX_TENSORS][64];
};

static void begin(struct draft *draft, const char *name)
{
	memset(draft, 0, sizeof(*draft));
	tierd__wire__unit_define__init(&draft->define);
	draft->define.name = (char *)name;
	draft->define.tensors = draft->pointers;
}

static Tierd__Wire__Tensor *add(struct draft *draft, const char *name, uint32_t format, uint64_t elements)
{
	size_t i = draft->define.n_tensors++;
	Tierd__Wire__Tensor *tensor = draft->pointers[i] = &draft->tensors[i];

	tierd__wire__tensor__init(tensor);
	snprintf(draft->names[i], sizeof(draft->names[i]), "%s", name);
	tensor->name = draft->names[i];
	tensor->format = format;
	tensor->n_shape = 1;
	tensor->shape = draft->shapes[i];
	tensor->shape[0] = elements;
	return tensor;
}

static Tierd__Wire__Tensor *begin_one(struct draft *draft)
{
	begin(draft, "unit");
	return add(draft, "w", FORMAT_BF16, 1000);
}

static const struct optimizer_group same_groups[2];
static const struct job_options two_groups = { .group_count = 2, .groups = same_groups };

static int define(struct draft *draft)
{
	message[0] = '\0';
	catalog.unit_maximum = unit_maximum;
	catalog.tensor_maximum = tensor_maximum;
	catalog.name_maximum = name_maximum;
	catalog.dimension_maximum = dimension_maximum;
	return catalog_define(&catalog, &draft->define, &two_groups, message, sizeof(message));
}

static void define_simple(const char *name, uint64_t elements)
{
	struct draft draft;

	begin(&draft, name);
	add(&draft, name, FORMAT_BF16, elements);
	assert_int_equal(define(&draft), 0);
}

static void expect_message(const char *text)
{
	if (!strstr(message, text))
		fail_msg("\"%s\" does not say \"%s\"", message, text);
}

/* Nothing of it stays. */
static void expect_refused(struct draft *draft, int error, const char *text)
{
	uint32_t units = catalog.unit_count;
	uint64_t tensors = catalog.tensor_count;

	assert_int_equal(define(draft), error);
	expect_message(text);
	assert_int_equal(catalog.unit_count, units);
	assert_int_equal(catalog.tensor_count, tensors);
}

static int teardown(void **state)
{
	catalog_free(&catalog);
	unit_maximum = CATALOG_MAX_UNITS;
	tensor_maximum = CATALOG_MAX_TENSORS;
	name_maximum = WIRE_MAX_NAME;
	dimension_maximum = WIRE_MAX_DIMENSIONS;
	return 0;
}

/* ---- Definition ---- */

static void names_are_checked(void **state)
{
	char name[130];
	struct draft draft;

	begin(&draft, "unit");
	expect_refused(&draft, -EINVAL, "unit \"unit\" has no tensors");
	begin_one(&draft);
	draft.define.name = (char *)"";
	expect_refused(&draft, -EINVAL, "a unit has a name of 0 bytes");
	memset(name, 'x', 129);
	name[129] = '\0';
	draft.define.name = name;
	expect_refused(&draft, -EINVAL, "129 bytes");
	begin_one(&draft)->name = (char *)"a\nb";
	expect_refused(&draft, -EINVAL, "not printable");
}

static void names_are_unique(void **state)
{
	struct draft draft;

	begin_one(&draft);
	assert_int_equal(define(&draft), 0);
	expect_refused(&draft, -EEXIST, "there is already a unit \"unit\"");
	draft.define.name = (char *)"other";
	expect_refused(&draft, -EEXIST, "there is already a tensor \"w\"");
	begin(&draft, "other");
	add(&draft, "x", FORMAT_BF16, 1);
	add(&draft, "x", FORMAT_FP32, 1);
	expect_refused(&draft, -EEXIST, "there is already a tensor \"x\"");
	/* What was refused has left no names behind. */
	define_simple("x", 1);
}

static void wrong_tensors_are_refused(void **state)
{
	struct draft draft;

	begin_one(&draft)->group = 2;
	expect_refused(&draft, -EINVAL, "tensor \"w\" is in parameter group 2; the job has 2");
	begin_one(&draft)->format = 5;
	expect_refused(&draft, -EINVAL, "unknown format 5");
	begin_one(&draft)->format = FORMAT_BYTES;
	expect_refused(&draft, -EINVAL, "tensor \"w\" holds bytes, which cannot be trained");
	draft.tensors[0].is_frozen = true;
	draft.tensors[0].initializer = INITIALIZE_ONES;
	expect_refused(&draft, -EINVAL, "initializers make numbers");
	begin_one(&draft)->dtype = (char *)"I64[125]";
	expect_refused(&draft, -EINVAL, "a dtype is told of bytes alone");
	draft.tensors[0].format = FORMAT_BYTES;
	draft.tensors[0].is_frozen = true;
	draft.tensors[0].dtype = (char *)"I64\n[125]";
	expect_refused(&draft, -EINVAL, "a dtype is told of bytes alone");
	begin_one(&draft)->initializer = 5;
	expect_refused(&draft, -EINVAL, "no initializer 5");
	begin_one(&draft)->b = NAN;
	expect_refused(&draft, -EINVAL, "not finite");
	begin_one(&draft)->n_shape = 9;
	expect_refused(&draft, -EINVAL, "9 dimensions");
	begin_one(&draft)->gradient_format = FORMAT_FP16;
	expect_refused(&draft, -EINVAL,
		       "tensor \"w\" cannot have gradients of format 3: they are in its own, or in fp32");
	begin_one(&draft)->gradient_format = UINT32_MAX;
	expect_refused(&draft, -EINVAL, "cannot have gradients of format 4294967295");
}

static void gradients_of_a_part_have_one_format(void **state)
{
	struct draft draft;
	Tierd__Wire__Tensor *frozen;

	for (unsigned which = 0; which < 2; which++) {
		begin_one(&draft)->gradient_format = which == 0 ? FORMAT_FP32 : FORMAT_BF16;
		add(&draft, "v", FORMAT_BF16, 1)->gradient_format = which == 1 ? FORMAT_FP32 : 0;
		expect_refused(
			&draft, -EINVAL,
			which == 0
				? "unit \"unit\": tensor \"v\" has gradients in its own format, and others "
				  "of that format have them in fp32; give them the same, or put them in two "
				  "units"
				: "unit \"unit\": tensor \"w\" has gradients in its own format");
	}
	begin_one(&draft)->gradient_format = FORMAT_FP32;
	add(&draft, "h", FORMAT_FP16, 600);
	add(&draft, "s", FORMAT_FP32, 100)->gradient_format = FORMAT_FP32;
	/* Of what has none it means nothing. */
	frozen = add(&draft, "f", FORMAT_BF16, 100);
	frozen->is_frozen = true;
	frozen->gradient_format = 77;
	assert_int_equal(define(&draft), 0);
	assert_true(unit_part(&catalog.units[0], SECTION_BF16)->has_wide_gradients);
	assert_false(unit_part(&catalog.units[0], SECTION_FP16)->has_wide_gradients);
	assert_int_equal(unit_gradient_bytes(&catalog.units[0]), 4 * 1024 + 2 * 768 + 4 * 256);
	assert_int_equal(unit_trainable_bytes(&catalog.units[0]), 2 * 1024 + 2 * 768 + 4 * 256);
	assert_int_equal(catalog.gradient_bytes_maximum, 8192);
}

static void sizes_that_overflow_are_refused(void **state)
{
	struct draft draft;
	Tierd__Wire__Tensor *tensor = begin_one(&draft);

	tensor->shape[0] = UINT64_MAX;
	expect_refused(&draft, -EOVERFLOW, "tensor \"w\" is too large");
	tensor->n_shape = 3;
	tensor->shape[0] = tensor->shape[1] = tensor->shape[2] = UINT64_C(1) << 22;
	expect_refused(&draft, -EOVERFLOW, "too large");
	begin(&draft, "unit");
	add(&draft, "a", FORMAT_FP32, UNIT_MAX_ELEMENTS);
	add(&draft, "b", FORMAT_FP32, UNIT_MAX_ELEMENTS);
	expect_refused(&draft, -EOVERFLOW, "\"b\" is too large");
}

static void slices_stay_within_their_tensor(void **state)
{
	struct draft draft;
	Tierd__Wire__Tensor *tensor = begin_one(&draft);

	tensor->slice_of = (char *)"large";
	tensor->slice_rows = 1500;
	tensor->slice_row = 501;
	expect_refused(&draft, -EINVAL, "rows 501 + 1000 go beyond the 1500 rows of \"large\"");
	tensor->slice_row = UINT64_MAX;
	expect_refused(&draft, -EINVAL, "go beyond");
	tensor->slice_row = 500;
	assert_int_equal(define(&draft), 0);
}

static void expect_part(const struct unit *unit, enum unit_section section, uint64_t elements, uint64_t first)
{
	const struct unit_part *part = unit_part(unit, section);

	assert_non_null(part);
	assert_int_equal(part->section, section);
	assert_int_equal(part->elements, elements);
	assert_int_equal(part->first, first);
}

static void a_unit_has_a_part_of_each_section_that_its_tensors_lie_in(void **state)
{
	struct draft draft;

	begin(&draft, "unit");
	add(&draft, "a", FORMAT_FP32, 100);
	add(&draft, "b", FORMAT_BF16, 300)->is_frozen = true;
	add(&draft, "c", FORMAT_BF16, 600);
	add(&draft, "empty", FORMAT_FP16, 0);
	assert_int_equal(define(&draft), 0);
	const struct unit *unit = &catalog.units[0];

	assert_int_equal(unit->part_count, 4);
	expect_part(unit, SECTION_BF16, 768, 0);
	expect_part(unit, SECTION_FP16, 0, 768);
	expect_part(unit, SECTION_FP32, 256, 768);
	expect_part(unit, SECTION_FROZEN_BF16, 512, 1024);
	assert_null(unit_part(unit, SECTION_FROZEN_FP32));
	assert_int_equal(unit->parameters, 1000);
	assert_int_equal(unit->trainable, 1024);
	assert_int_equal(unit_elements(unit), 1536);
	assert_int_equal(unit_parameter_bytes(unit), 2 * 768 + 4 * 256 + 2 * 512);
	assert_int_equal(unit_trainable_bytes(unit), 2 * 768 + 4 * 256);
}

/* Sanitizers count otherwise: there nothing is seen. */
static uint64_t allocated_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void a_definition_takes_no_more_memory_than_it_says(void **state)
{
	uint64_t before = allocated_bytes(), said = 0;

	for (unsigned i = 0; i < 3000; i++) {
		unsigned tensors = 1 + i % MAX_TENSORS;
		struct draft draft;
		char unit[24], name[24];

		snprintf(unit, sizeof(unit), "unit.%u", i);
		begin(&draft, unit);
		for (unsigned t = 0; t < tensors; t++) {
			snprintf(name, sizeof(name), "%u.%u", i, t);
			add(&draft, name, FORMAT_FP32, 100)->is_frozen = t % 2 == 0;
		}
		said += catalog_definition_bytes(&draft.define);
		assert_int_equal(define(&draft), 0);
		for (unsigned t = 0; t < tensors; t++)
			assert_int_equal(tensor_mark_written(&catalog.units[i].tensors[t], 0, 100), 0);
	}
	/* But the first block of a region. */
	assert_true(allocated_bytes() - before <= said + 64 * KIB);
}

/* ---- Comparison ---- */

static void expect_difference(struct draft *draft, const char *text)
{
	assert_int_equal(catalog_compare(&catalog, 0, &draft->define, message, sizeof(message)), -EINVAL);
	expect_message(text);
}

static void the_first_difference_is_named(void **state)
{
	struct draft draft;
	Tierd__Wire__Tensor *tensor = begin_one(&draft);

	assert_int_equal(define(&draft), 0);
	assert_int_equal(catalog_compare(&catalog, 0, &draft.define, message, sizeof(message)), 0);
	tensor->shape[0] = 999;
	expect_difference(&draft,
			  "unit \"unit\", tensor \"w\": shape [999] here, [1000] in the job; a job keeps its "
			  "units: open it with the model that it was made of");
	begin_one(&draft)->name = (char *)"v";
	expect_difference(&draft, "tensor \"v\" here, \"w\" in the job");
	begin_one(&draft)->format = FORMAT_FP32;
	expect_difference(&draft, "format fp32 here, bf16 in the job");
	begin_one(&draft)->is_frozen = true;
	expect_difference(&draft, "tensor \"w\": frozen here, trained in the job");
	begin_one(&draft)->gradient_format = FORMAT_FP32;
	expect_difference(&draft,
			  "tensor \"w\": gradients in fp32 here, gradients in its own format in the job");
	begin_one(&draft)->gradient_format = FORMAT_BF16;
	assert_int_equal(catalog_compare(&catalog, 0, &draft.define, message, sizeof(message)), 0);
	begin_one(&draft)->alias = (char *)"head";
	expect_difference(&draft, "alias \"head\" here, no alias in the job");
	begin_one(&draft)->group = 1;
	expect_difference(&draft, "group 1 here, 0 in the job");
	tensor = begin_one(&draft);
	tensor->slice_of = (char *)"table";
	tensor->slice_row = 8;
	tensor->slice_rows = 2000;
	expect_difference(&draft, "slice from row 8 of 2000 of \"table\" here, no slice in the job");
	tensor = begin_one(&draft);
	tensor->initializer = INITIALIZE_NORMAL;
	tensor->b = 0.02;
	expect_difference(&draft, "initializer normal with a 0 and b 0.02 here, initializer ");
	begin_one(&draft);
	draft.define.name = (char *)"other";
	expect_difference(&draft, "other");
	begin_one(&draft);
	add(&draft, "more", FORMAT_BF16, 1);
	expect_difference(&draft, "tensors");
}

/* It is told by whoever knows it, and changes nothing for the others. */
static void another_dtype_of_bytes_is_a_difference_and_none_is_not(void **state)
{
	struct draft draft;

	begin(&draft, "unit");
	add(&draft, "w", FORMAT_BYTES, 1000)->is_frozen = true;
	draft.tensors[0].dtype = (char *)"I64[125]";
	assert_int_equal(define(&draft), 0);
	assert_string_equal(catalog.units[0].tensors[0].dtype, "I64[125]");
	draft.tensors[0].dtype = (char *)"";
	assert_int_equal(catalog_compare(&catalog, 0, &draft.define, message, sizeof(message)), 0);
	draft.tensors[0].dtype = (char *)"F64[125]";
	expect_difference(&draft, "dtype");
}

/* ---- Packs ---- */

static void neighbours_share_a_pack_up_to_its_limit(void **state)
{
	define_simple("a", PACK_ELEMENTS / 2);
	define_simple("b", PACK_ELEMENTS / 2);
	define_simple("c", 256);
	define_simple("large", 3 * PACK_ELEMENTS);
	define_simple("d", 256);
	assert_int_equal(catalog_pack(&catalog), 0);
	assert_int_equal(catalog.pack_count, 4);
	assert_int_equal(catalog.packs[0].unit_count, 2);
	assert_int_equal(catalog.units[1].pack, 0);
	assert_int_equal(unit_part(&catalog.units[1], SECTION_BF16)->pack_first, PACK_ELEMENTS / 2);
	assert_int_equal(catalog.units[2].pack, 1);
	assert_int_equal(catalog.packs[2].first_unit, 3);
	assert_int_equal(catalog.units[4].pack, 3);
	assert_int_equal(catalog.packs[0].slot_bytes, 2 * PACK_ELEMENTS);
	catalog_unpack(&catalog);
	assert_int_equal(catalog.pack_count, 0);
	assert_int_equal(catalog_pack(&catalog), 0);
	assert_int_equal(catalog.pack_count, 4);
}

static void sections_of_a_pack_begin_on_pages(void **state)
{
	struct draft draft;

	begin(&draft, "unit");
	add(&draft, "a", FORMAT_BF16, 300);
	add(&draft, "b", FORMAT_FP32, 300);
	add(&draft, "c", FORMAT_FP32, 10)->is_frozen = true;
	assert_int_equal(define(&draft), 0);
	define_simple("small", 1);
	assert_int_equal(catalog_pack(&catalog), 0);
	assert_int_equal(catalog.pack_count, 1);
	const struct pack *pack = &catalog.packs[0];
	uint64_t end = 0;

	for (int section = 0; section < UNIT_SECTIONS; section++) {
		assert_int_equal(pack->slot_offset[section] % 4096, 0);
		assert_true(pack->slot_offset[section] >= end);
		end = pack->slot_offset[section] +
		      pack->elements[section] * section_element_bytes((enum unit_section)section);
	}
	assert_true(pack->slot_bytes >= end);
}

static void a_unit_of_empty_tensors_has_a_place(void **state)
{
	define_simple("empty", 0);
	assert_int_equal(catalog_pack(&catalog), 0);
	assert_true(catalog.packs[0].slot_bytes > 0);
}

/* ---- Values ---- */

static struct tensor *one_tensor(uint64_t elements)
{
	define_simple("w", elements);
	return &catalog.units[0].tensors[0];
}

static void written_spans_merge(void **state)
{
	struct tensor *tensor = one_tensor(100);

	assert_int_equal(tensor_mark_written(tensor, 50, 10), 0);
	assert_int_equal(tensor_mark_written(tensor, 10, 10), 0);
	assert_int_equal(tensor_mark_written(tensor, 90, 10), 0);
	assert_int_equal(tensor->written_count, 3);
	assert_int_equal(tensor->written[0].first, 10);
	assert_int_equal(tensor->written[2].end, 100);
	/* Touches the first, reaches into the second. */
	assert_int_equal(tensor_mark_written(tensor, 20, 35), 0);
	assert_int_equal(tensor->written_count, 2);
	assert_int_equal(tensor->written[0].first, 10);
	assert_int_equal(tensor->written[0].end, 60);
	assert_int_equal(tensor_mark_written(tensor, 30, 0), 0);
	assert_false(tensor_is_written(tensor));
	assert_int_equal(tensor_mark_written(tensor, 0, 100), 0);
	assert_int_equal(tensor->written_count, 1);
	assert_true(tensor_is_written(tensor));
}

/* Against a map of bytes. */
static void written_spans_equal_a_map(void **state)
{
	struct tensor *tensor = one_tensor(64);
	bool map[64] = { false };
	uint32_t random = 12345;

	for (unsigned round = 0; round < 200; round++) {
		random = random * 1664525 + 1013904223;
		uint64_t first = random >> 8 & 63, count = random >> 16 & 7;

		if (first + count > 64)
			count = 64 - first;
		assert_int_equal(tensor_mark_written(tensor, first, count), 0);
		memset(map + first, true, count);
		uint64_t end = 0;

		for (unsigned i = 0; i < tensor->written_count; i++) {
			assert_true(i == 0 || tensor->written[i].first > end);
			for (uint64_t at = end; at < tensor->written[i].first; at++)
				assert_false(map[at]);
			for (uint64_t at = tensor->written[i].first; at < tensor->written[i].end; at++)
				assert_true(map[at]);
			end = tensor->written[i].end;
		}
		for (uint64_t at = end; at < 64; at++)
			assert_false(map[at]);
	}
}

static void units_beyond_the_configured_number_are_refused(void **state)
{
	struct draft draft;

	unit_maximum = 2;
	define_simple("a", 10);
	define_simple("b", 10);
	begin_one(&draft);
	expect_refused(&draft, -E2BIG, "unit \"unit\" is too many: a job has at most 2 units");
	unit_maximum = 3;
	assert_int_equal(define(&draft), 0);
}

static void tensors_beyond_the_configured_number_are_refused(void **state)
{
	struct draft draft;

	tensor_maximum = 2;
	define_simple("a", 10);
	begin_one(&draft);
	add(&draft, "x", FORMAT_BF16, 10);
	expect_refused(&draft, -E2BIG, "2 tensors here (units_per_job, tensors_per_job)");
	draft.define.n_tensors = 1;
	assert_int_equal(define(&draft), 0);
}

static void names_beyond_the_configured_length_are_refused(void **state)
{
	struct draft draft;
	Tierd__Wire__Tensor *tensor;

	name_maximum = 4;
	tensor = begin_one(&draft);
	tensor->name = (char *)"five5";
	expect_refused(&draft, -EINVAL, "a tensor has a name of 5 bytes; 1 to 4 are allowed (name_length)");
	tensor->name = (char *)"four";
	tensor->alias = (char *)"five5";
	expect_refused(&draft, -EINVAL, "a tensor's alias has a name of 5 bytes");
	tensor->alias = (char *)"";
	draft.define.name = (char *)"five5";
	expect_refused(&draft, -EINVAL, "a unit has a name of 5 bytes");
	draft.define.name = (char *)"four";
	assert_int_equal(define(&draft), 0);
}

static void dimensions_beyond_the_configured_number_are_refused(void **state)
{
	static uint64_t shape[] = { 2, 3, 4 };
	struct draft draft;
	Tierd__Wire__Tensor *tensor = begin_one(&draft);

	dimension_maximum = 2;
	tensor->n_shape = 3;
	tensor->shape = shape;
	expect_refused(&draft, -EINVAL, "has 3 dimensions; at most 2 are allowed (dimensions_per_tensor)");
	tensor->n_shape = 2;
	assert_int_equal(define(&draft), 0);
}

static void unwritten_tensors_are_named(void **state)
{
	char text[256], small[8], name[16];

	for (unsigned i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		define_simple(name, i == 2 ? 0 : 10);
	}
	assert_int_equal(tensor_mark_written(&catalog.units[1].tensors[0], 0, 10), 0);
	catalog.units[3].tensors[0].initializer = INITIALIZE_ZEROS;
	assert_int_equal(catalog_unwritten(&catalog, text, sizeof(text)), 3);
	assert_string_equal(text, "\"t0\", \"t4\", \"t5\"");
	assert_int_equal(catalog_unwritten(&catalog, small, sizeof(small)), 3);
	assert_int_equal(strlen(small), sizeof(small) - 1);
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(names_are_checked),
		TEST(names_are_unique),
		TEST(wrong_tensors_are_refused),
		TEST(gradients_of_a_part_have_one_format),
		TEST(sizes_that_overflow_are_refused),
		TEST(slices_stay_within_their_tensor),
		TEST(a_unit_has_a_part_of_each_section_that_its_tensors_lie_in),
		TEST(a_definition_takes_no_more_memory_than_it_says),
		TEST(the_first_difference_is_named),
		TEST(another_dtype_of_bytes_is_a_difference_and_none_is_not),
		TEST(neighbours_share_a_pack_up_to_its_limit),
		TEST(sections_of_a_pack_begin_on_pages),
		TEST(a_unit_of_empty_tensors_has_a_place),
		TEST(written_spans_merge),
		TEST(written_spans_equal_a_map),
		TEST(units_beyond_the_configured_number_are_refused),
		TEST(tensors_beyond_the_configured_number_are_refused),
		TEST(names_beyond_the_configured_length_are_refused),
		TEST(dimensions_beyond_the_configured_number_are_refused),
		TEST(unwritten_tensors_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
