/* Each allocation of reading and writing headers and indexes of tensors, and of listing what an import makes
 * of them, fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "client/tierctl/ahead.h"
#include "client/tierctl/command.h"
#include "client/tierctl/import_list.h"
#include "tests/fault/alloc_fault.h"

static const char text[] =
	"{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":"
	"[0,2]},\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]}}";
static char folder[] = "/tmp/test-safetensors-XXXXXX";

static char *name(const char *file)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return path;
}

static int make_files(void **state)
{
	FILE *file;

	if (!mkdtemp(folder) || !(file = fopen(name("model"), "w")))
		return -1;
	fprintf(file, "%c%7s%s%6s", (int)strlen(text), "", text, "");
	fseek(file, 1, SEEK_SET);
	fwrite((char[7]){ 0 }, 1, 7, file);
	if (fclose(file) != 0 || !(file = fopen(name("index.json"), "w")))
		return -1;
	fputs("{\"weight_map\":{\"b\":\"model\",\"a\":\"model\"}}", file);
	return fclose(file);
}

static int remove_files(void **state)
{
	return unlink(name("model")) + unlink(name("index.json")) + rmdir(folder);
}

static void a_model_is_opened_or_is_not(void **state)
{
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct safetensors_model *model = NULL;
		struct safetensors_problem problem;

		alloc_fault_arm(nth);
		int r = safetensors_model_open(name("index.json"), &model, &problem);
		tripped = alloc_fault_tripped();

		assert_int_equal(r, tripped ? -ENOMEM : 0);
		if (tripped)
			assert_null(model);
		safetensors_model_free(model);
	}
}

static int write_header(struct safetensors_problem *problem)
{
	struct safetensors_header header = SAFETENSORS_HEADER_INIT;
	struct safetensors_tensor tensor = { .name = "a", .dtype = SAFETENSORS_U8 };
	char *bytes = NULL;
	size_t length;
	int r = safetensors_header_add(&header, &tensor, problem);

	if (r == 0)
		r = safetensors_header_note(&header, "k", "v", problem);
	if (r == 0)
		r = safetensors_header_write(&header, "model", &bytes, &length, problem);
	safetensors_header_clear(&header);
	free(bytes);
	return r;
}

static void a_header_is_written_or_is_not(void **state)
{
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct safetensors_problem problem;

		alloc_fault_arm(nth);
		int r = write_header(&problem);
		tripped = alloc_fault_tripped();

		assert_int_equal(r, tripped ? -ENOMEM : 0);
	}
}

static void an_import_is_listed_or_is_not(void **state)
{
	const struct import_options options = { .is_trainable = true };
	struct safetensors_model *model = NULL;
	struct safetensors_problem problem;
	bool tripped = true;

	assert_int_equal(safetensors_model_open(name("model"), &model, &problem), 0);
	for (unsigned nth = 1; tripped; nth++) {
		struct import_list list = { NULL };

		alloc_fault_arm(nth);
		int code = import_list_read(&list, model, &options);
		tripped = alloc_fault_tripped();

		assert_int_equal(code, tripped ? COMMAND_FAILED : COMMAND_DONE);
		if (!tripped)
			assert_int_equal(list.unit_count, 2);
		import_list_clear(&list);
	}
	safetensors_model_free(model);
}

static void a_file_is_read_ahead_or_is_not(void **state)
{
	_cleanup_close_ int fd = open(name("model"), O_RDONLY | O_CLOEXEC);
	bool tripped = true;

	assert_true(fd >= 0);
	for (unsigned nth = 1; tripped; nth++) {
		struct ahead *ahead = NULL;
		const char *bytes;
		size_t length;

		alloc_fault_arm(nth);
		int r = ahead_new(fd, 8, strlen(text), &ahead);
		tripped = alloc_fault_tripped();

		assert_int_equal(r, tripped ? -ENOMEM : 0);
		if (!tripped) {
			assert_int_equal(ahead_look(ahead, 1, &bytes, &length), 0);
			assert_memory_equal(bytes, text, length);
		}
		ahead_free(ahead);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_is_opened_or_is_not),
		cmocka_unit_test(a_header_is_written_or_is_not),
		cmocka_unit_test(an_import_is_listed_or_is_not),
		cmocka_unit_test(a_file_is_read_ahead_or_is_not),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
