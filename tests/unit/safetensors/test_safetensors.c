/* Files of tensors: what is made is read again, and what is wrong is refused, with a sentence that names it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "client/safetensors/model.h"
#include "tests/unit/test.h"

/* ---- Headers ---- */

static int parse(const char *text, uint64_t data_bytes, struct safetensors_header *header,
		 struct safetensors_problem *problem)
{
	*header = (struct safetensors_header)SAFETENSORS_HEADER_INIT;
	return safetensors_header_parse(strdup(text), strlen(text), data_bytes, "model", header, problem);
}

#define U8(name, begin, end, shape)                                                                          \
	"\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void what_the_format_allows_is_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t data_bytes;
		size_t tensors;
	} good[] = {
		{ "{}", 0, 0 },
		{ " { } \n ", 0, 0 },
		{ "{\"__metadata__\":null}", 0, 0 },
		{ "{" U8("a", 0, 2, "[2]") "}", 2, 1 },
		/* a scalar, and what has no elements, at any place where one may be */
		{ "{" U8("a", 0, 1, "[]") "," U8("b", 0, 0, "[0, 7]") "," U8("c", 1, 1, "[0]") "}", 1, 3 },
		/* named in another order than they lie */
		{ "{" U8("b", 1, 3, "[2]") "," U8("a", 0, 1, "[1]") "}", 3, 2 },
		{ "{\"a\":{\"x\":[{\"y\":[-1.5e3,true,null]}],\"shape\":[8],\"data_offsets\":[0,4],\"dtype\":"
		  "\"F4\"}}",
		  4, 1 },
		{ "{\"\\u00e9\\ud83d\\ude00\\/"
		  "\":{\"dtype\":\"F8_E5M2\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		  1, 1 },
	};
	struct safetensors_problem problem = { "" };
	struct safetensors_header header;

	for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
		if (parse(good[i].text, good[i].data_bytes, &header, &problem) < 0)
			fail_msg("%s: %s", good[i].text, problem.text);
		assert_int_equal(header.tensor_count, good[i].tensors);
		assert_int_equal(header.data_first, 8 + strlen(good[i].text));
		safetensors_header_clear(&header);
	}
}

static void strings_are_decoded(void **state)
{
	struct safetensors_problem problem;
	struct safetensors_header header;

	assert_int_equal(
		parse("{\"__metadata__\":{\"k\\n\":\"\\\"\\\\\\/\\b\\f\\r\\t\\u20aC\\ud83d\\uDE00\"}}", 0,
		      &header, &problem),
		0);
	assert_int_equal(header.note_count, 1);
	assert_string_equal(header.notes[0].key, "k\n");
	assert_string_equal(header.notes[0].value, "\"\\/\b\f\r\t\xe2\x82\xac\xf0\x9f\x98\x80");
	safetensors_header_clear(&header);
}

#define TENSOR(rest) "{\"a\":{" rest "}}"
#define SIZED(dtype, shape, begin, end)                                                                      \
	TENSOR("\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]")

static void what_is_wrong_is_refused_by_name(void **state)
{
	static const struct {
		const char *text;
		uint64_t data_bytes;
		int error;
		const char *message;
	} bad[] = {
		{ "", 0, -EINVAL, "'{' is missing" },
		{ "[]", 0, -EINVAL, "'{' is missing" },
		{ "{", 0, -EINVAL, "'\"' is missing" },
		{ "{}x", 0, -EINVAL, "more behind its end" },
		{ "{\"a", 0, -EINVAL, "does not end" },
		{ "{\"a\":{}}", 0, -EINVAL, "lacks its dtype, shape or data_offsets" },
		{ "{\"\":{}}", 0, -EINVAL, "is empty" },
		{ "{\"a\\u0001\":{}}", 0, -EINVAL, "control character" },
		{ "{\"\xff\":1}", 0, -EINVAL, "not UTF-8" },
		{ "{\"\xc0\xaf\":1}", 0, -EINVAL, "not UTF-8" },
		{ "{\"\\ud800\":1}", 0, -EINVAL, "half a character" },
		{ "{\"\\ud800\\u0041\":1}", 0, -EINVAL, "half a character" },
		{ "{\"\\udc00\":1}", 0, -EINVAL, "half a character" },
		{ "{\"\\u0000\":1}", 0, -EINVAL, "zero byte" },
		{ "{\"\\u00g0\":1}", 0, -EINVAL, "hexadecimal" },
		{ "{\"\\x\":1}", 0, -EINVAL, "escape is unknown" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, -EINVAL, "'\"' is missing" },
		{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, -EINVAL, "come twice" },
		{ "{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0, -EEXIST,
		  "two metadata have the name \"k\"" },
		{ "{" U8("a", 0, 1, "[1]") "," U8("a", 1, 2, "[1]") "}", 2, -EEXIST, "two tensors" },
		{ "{" U8("a", 0, 2, "[2]") "," U8("b", 1, 3, "[2]") "}", 3, -EINVAL, "overlap" },
		{ "{" U8("a", 0, 1, "[1]") "," U8("b", 2, 3, "[1]") "}", 3, -EINVAL, "hole" },
		{ "{" U8("a", 1, 2, "[1]") "}", 2, -EINVAL,
		  "begins at byte 1 of the data, and what is before it ends at 0: that leaves a hole" },
		{ "{" U8("a", 1, 0, "[1]") "}", 1, -EINVAL, "before it begins" },
		{ "{" U8("a", 0, 2, "[2]") "}", 1, -EINVAL, "is 1 byte shorter than its header says" },
		{ "{" U8("a", 0, 2, "[2]") "}", 1, -EINVAL, "it was cut off" },
		{ "{" U8("a", 0, 2, "[2]") "}", 6, -EINVAL, "is 4 bytes longer than its header says" },
		{ "{" U8("a", 0, 2, "[2]") "}", 6, -EINVAL, "something was added behind its end" },
		{ "{}", 1, -EINVAL, "is 1 byte longer than its header says" },
		{ "{" U8("a", 0, 3, "[2]") "}", 3, -EINVAL, "has 2 bytes by its shape" },
		{ SIZED("BF16", "[2]", "0", "2"), 2, -EINVAL, "has 4 bytes by its shape" },
		{ SIZED("F4", "[3]", "0", "2"), 2, -EINVAL, "whole byte" },
		{ SIZED("F99", "[1]", "0", "1"), 1, -EINVAL, "unknown dtype \"F99\"" },
		{ SIZED("U8", "[4294967296,4294967296]", "0", "1"), 1, -ERANGE, "64 bits" },
		{ SIZED("F64", "[2305843009213693952]", "0", "1"), 1, -ERANGE, "64 bits" },
		{ SIZED("U8", "[18446744073709551615,2,0]", "0", "0"), 0, -ERANGE, "64 bits" },
		{ SIZED("U8", "[18446744073709551616]", "0", "1"), 1, -ERANGE, "64 bits" },
		{ SIZED("U8", "[1]", "0", "99999999999999999999999"), 1, -ERANGE, "64 bits" },
		{ SIZED("U8", "[-1]", "0", "1"), 1, -EINVAL, "no whole number" },
		{ SIZED("U8", "[01]", "0", "1"), 1, -EINVAL, "no whole number" },
		{ SIZED("U8", "[1.0]", "0", "1"), 1, -EINVAL, "not a whole one" },
		{ SIZED("U8", "[1e0]", "0", "1"), 1, -EINVAL, "not a whole one" },
		{ SIZED("U8", "[1,]", "0", "1"), 1, -EINVAL, "no whole number" },
		{ SIZED("U8", "[1]", "0,1", "1"), 1, -EINVAL, "']' is missing" },
		{ TENSOR("\"dtype\":\"U8\",\"dtype\":\"U8\""), 0, -EINVAL, "two dtypes" },
		{ TENSOR("\"shape\":[],\"shape\":[]"), 0, -EINVAL, "two shapes" },
		{ TENSOR("\"data_offsets\":[0,0],\"data_offsets\":[0,0]"), 0, -EINVAL, "twice" },
		{ TENSOR("\"x\":"
			 "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["),
		  0, -EINVAL, "more than 32 deep" },
		{ TENSOR("\"x\":?"), 0, -EINVAL, "a value is missing" },
		{ TENSOR("\"dtype\":\"U8\""), 0, -EINVAL, "lacks" },
	};
	struct safetensors_problem problem;
	struct safetensors_header header;

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
		int r = parse(bad[i].text, bad[i].data_bytes, &header, &problem);

		if (r != bad[i].error || !strstr(problem.text, bad[i].message))
			fail_msg("%s: %d, %s", bad[i].text, r, r < 0 ? problem.text : "taken");
		assert_memory_equal(problem.text, "model", 5);
		assert_null(header.tensors);
	}
}

static void add(struct safetensors_header *header, const char *name, enum safetensors_dtype dtype,
		const uint64_t *shape, uint32_t dimensions)
{
	struct safetensors_tensor tensor = {
		.name = name, .dtype = dtype, .shape = shape, .dimensions = dimensions
	};
	struct safetensors_problem problem;

	assert_int_equal(safetensors_header_add(header, &tensor, &problem), 0);
}

static const uint64_t odd[] = { 3, 1 }, none[] = { 0, 5 };

/* First and last of those that have to be escaped, and what comes next. */
#define CONTROLS "\x01\x1f\x7f\xc2\x80\xc2\x9f\xc2\xa0\xc3\xa9"

static void what_is_written_is_read_again_and_aligned(void **state)
{
	struct safetensors_header made = SAFETENSORS_HEADER_INIT, read = SAFETENSORS_HEADER_INIT;
	static const char *const order[] = { "f32", "scalar", "odd \"bf16\"", "none", "u8" };
	struct safetensors_problem problem;
	char *bytes;
	size_t length;

	add(&made, "u8", SAFETENSORS_U8, odd, 2);
	add(&made, "odd \"bf16\"", SAFETENSORS_BF16, odd, 2);
	add(&made, "f32", SAFETENSORS_F32, odd, 1);
	add(&made, "none", SAFETENSORS_F16, none, 2);
	add(&made, "scalar", SAFETENSORS_F32, NULL, 0);
	assert_int_equal(safetensors_header_note(&made, "format", CONTROLS, &problem), 0);
	assert_int_equal(safetensors_header_write(&made, "model", &bytes, &length, &problem), 0);
	assert_int_equal(length % 8, 0);
	assert_int_equal(made.data_bytes, 12 + 4 + 6 + 3);
	assert_int_equal(made.data_first, length);
	memmove(bytes, bytes + 8, length - 8);
	bytes[length - 8] = '\0';
	if (safetensors_header_parse(bytes, length - 8, made.data_bytes, "model", &read, &problem) < 0)
		fail_msg("%s", problem.text);
	assert_int_equal(read.tensor_count, 5);
	assert_string_equal(read.notes[0].value, CONTROLS);
	for (size_t i = 0; i < 5; i++) {
		assert_string_equal(read.tensors[i].name, order[i]);
		assert_int_equal(read.tensors[i].begin % (safetensors_dtype_bits(read.tensors[i].dtype) / 8),
				 0);
		assert_int_equal(read.tensors[i].dimensions, made.tensors[i].dimensions);
	}
	safetensors_header_clear(&made);
	safetensors_header_clear(&read);
}

static void a_dtype_with_its_shape_is_printed_and_parsed(void **state)
{
	static const uint64_t shape[] = { 2, 0, UINT64_MAX };
	static const char *const bad[] = { "",
					   "[",
					   "I64",
					   "I64[",
					   "I64[]x",
					   "I65[]",
					   "i64[]",
					   "I64[2",
					   "I64[,]",
					   "I64[2,]",
					   "I64[2,,3]",
					   "I64[-1]",
					   "I64[ 1]",
					   "I64[1.0]",
					   "I64[1 ]",
					   "I64[18446744073709551616]",
					   "I64[1,2,3,4]" };
	enum safetensors_dtype dtype = SAFETENSORS_F4;
	uint64_t found[3];
	uint32_t dimensions;
	char *text;

	for (uint32_t count = 0; count <= 3; count++) {
		text = safetensors_dtype_print(SAFETENSORS_F8_E4M3FNUZ, shape, count);
		assert_int_equal(safetensors_dtype_parse(text, &dtype, found, 3, &dimensions), 0);
		assert_true(dtype == SAFETENSORS_F8_E4M3FNUZ && dimensions == count);
		assert_memory_equal(found, shape, count * sizeof(shape[0]));
		if (count == 3)
			assert_string_equal(text, "F8_E4M3FNUZ[2,0,18446744073709551615]");
		free(text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (safetensors_dtype_parse(bad[i], &dtype, found, 3, &dimensions) != -EINVAL)
			fail_msg("\"%s\" is taken", bad[i]);
	assert_true(dtype == SAFETENSORS_F8_E4M3FNUZ && dimensions == 3);
}

static void what_would_not_be_read_again_is_not_written(void **state)
{
	static const uint64_t huge[] = { UINT64_C(1) << 62 };
	static const struct {
		const char *first, *second;
		const uint64_t *shape;
		int error;
		const char *message;
	} bad[] = {
		{ "a", "a", odd, -EEXIST, "two tensors" },
		{ "a", "__metadata__", odd, -EINVAL, "give it another" },
		{ "a", "b", huge, -ERANGE, "larger than a file can be" },
	};
	struct safetensors_problem problem;
	char *bytes;
	size_t length;

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
		struct safetensors_header header = SAFETENSORS_HEADER_INIT;

		add(&header, bad[i].first, SAFETENSORS_F64, bad[i].shape, 1);
		add(&header, bad[i].second, SAFETENSORS_F64, bad[i].shape, 1);
		assert_int_equal(safetensors_header_write(&header, "model", &bytes, &length, &problem),
				 bad[i].error);
		if (!strstr(problem.text, bad[i].message))
			fail_msg("%s", problem.text);
		safetensors_header_clear(&header);
	}
}

/* ---- Indexes ---- */

static void an_index_is_read_and_written(void **state)
{
	static const char text[] =
		"{\"metadata\":{\"total_size\":12,\"by\":{\"x\":[]}},\"weight_map\":{"
		"\"b\":\"2.safetensors\",\"c\":\"1.safetensors\",\"a\":\"2.safetensors\"},\"y\":0}";
	struct safetensors_index index, again;
	struct safetensors_problem problem;
	char *written;
	size_t length;

	assert_int_equal(safetensors_index_parse(strdup(text), strlen(text), "index", &index, &problem), 0);
	assert_int_equal(safetensors_index_write(&index, &written, &length, &problem), 0);
	assert_int_equal(safetensors_index_parse(written, length, "index", &again, &problem), 0);
	assert_true(again.has_total && again.total_bytes == 12);
	assert_int_equal(again.count, 3);
	assert_string_equal(again.entries[0].tensor, "c");
	assert_string_equal(again.entries[2].tensor, "b");
	assert_string_equal(again.entries[2].file, "2.safetensors");
	safetensors_index_clear(&index);
	safetensors_index_clear(&again);
}

static void wrong_indexes_are_refused_by_name(void **state)
{
	static const struct {
		const char *text;
		int error;
		const char *message;
	} bad[] = {
		{ "{}", -EINVAL, "weight_map, which says where tensors are, is missing" },
		{ "{\"weight_map\":{},\"weight_map\":{}}", -EINVAL, "twice" },
		{ "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", -EEXIST, "tensor \"a\" is named twice" },
		{ "{\"weight_map\":{\"a\":\"../x\"}}", -EINVAL, "lie beside it" },
		{ "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", -EINVAL, "lie beside it" },
		{ "{\"weight_map\":{\"a\":\"..\"}}", -EINVAL, "lie beside it" },
		{ "{\"weight_map\":{\"a\":\"\"}}", -EINVAL, "lie beside it" },
		{ "{\"weight_map\":{\"a\":1}}", -EINVAL, "'\"' is missing" },
		{ "{\"weight_map\":{\"\":\"x\"}}", -EINVAL, "is empty" },
		{ "{\"metadata\":{\"total_size\":-1}}", -EINVAL, "no whole number" },
		{ "{\"weight_map\":{}}}", -EINVAL, "more behind its end" },
	};
	struct safetensors_problem problem;
	struct safetensors_index index;

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
		int r = safetensors_index_parse(strdup(bad[i].text), strlen(bad[i].text), "index", &index,
						&problem);

		if (r != bad[i].error || !strstr(problem.text, bad[i].message))
			fail_msg("%s: %d, %s", bad[i].text, r, r < 0 ? problem.text : "taken");
	}
}

/* ---- Files ---- */

static char folder[] = "/tmp/test-safetensors-XXXXXX";

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[sizeof(folder) + 16];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static const char *put(const char *name, const void *bytes, size_t length)
{
	static char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
	return path;
}

/* Of one tensor of a byte. */
static const char *put_tensor(const char *file, const char *name)
{
	char bytes[256] = { 0 };
	int length = snprintf(bytes + 8, sizeof(bytes) - 8,
			      "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);

	bytes[0] = (char)length;
	return put(file, bytes, 8 + (size_t)length + 1);
}

static void expect_refusal(const char *path, const char *message)
{
	struct safetensors_model *model = NULL;
	struct safetensors_problem problem;

	assert_true(safetensors_model_open(path, &model, &problem) < 0);
	assert_null(model);
	if (!strstr(problem.text, message) || !strstr(problem.text, folder))
		fail_msg("%s", problem.text);
}

static const char *put_index(const char *map)
{
	char text[256];

	return put("index.json", text, (size_t)snprintf(text, sizeof(text), "{\"weight_map\":{%s}}", map));
}

static void a_model_has_the_tensors_of_all_its_files(void **state)
{
	struct safetensors_model *model = NULL;
	struct safetensors_problem problem;

	put_tensor("1", "a");
	put_tensor("2", "b");
	assert_int_equal(safetensors_model_open(put_index("\"b\":\"2\",\"a\":\"1\""), &model, &problem), 0);
	assert_int_equal(model->file_count, 2);
	assert_int_equal(model->tensor_count, 2);
	assert_int_equal(model->tensor_bytes, 2);
	assert_string_equal(model->files[1].header.tensors[0].name, "b");
	safetensors_model_free(model);

	expect_refusal(put_index("\"a\":\"1\",\"c\":\"2\""),
		       "has the tensor \"b\", which the index does not place");
	expect_refusal(put_index("\"a\":\"1\",\"a2\":\"1\""), "lacks the tensor \"a2\"");
	expect_refusal(put_index("\"a\":\"3\""), "No such file");
}

static void files_of_something_else_are_refused(void **state)
{
	char bytes[32] = { 0 };

	expect_refusal(put("short", "1234567", 7), "7 bytes, too few for a file of tensors: it is none, or");
	expect_refusal(put("text", "This is a text.", 15), "it is no file of tensors");
	bytes[0] = 25;
	expect_refusal(
		put("cut", bytes, sizeof(bytes)),
		"says that its header has 25 bytes, and 24 are behind that; it was cut off, or is no file of "
		"tensors");
	memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0\0{}", 10); /* one more than the most */
	expect_refusal(put("long", bytes, sizeof(bytes)), "100000001 bytes, and 100000000 are the most");
	memset(bytes, 0xff, 8);
	expect_refusal(put("longest", bytes, sizeof(bytes)), "are the most");
	expect_refusal(folder, "is no file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_format_allows_is_read),
		cmocka_unit_test(strings_are_decoded),
		cmocka_unit_test(what_is_wrong_is_refused_by_name),
		cmocka_unit_test(what_is_written_is_read_again_and_aligned),
		cmocka_unit_test(a_dtype_with_its_shape_is_printed_and_parsed),
		cmocka_unit_test(what_would_not_be_read_again_is_not_written),
		cmocka_unit_test(an_index_is_read_and_written),
		cmocka_unit_test(wrong_indexes_are_refused_by_name),
		cmocka_unit_test(a_model_has_the_tensors_of_all_its_files),
		cmocka_unit_test(files_of_something_else_are_refused),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
