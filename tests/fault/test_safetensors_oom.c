/* Each allocation of reading and writing headers and indexes of tensors, and of listing what an import makes
 * of them, fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/ahead.h"
#include "client/tierctl/command.h"
#include "client/tierctl/import_list.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/test.h"

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

static int open_model(void)
{
	struct safetensors_model *model = NULL;
	struct safetensors_problem problem;
	int r = safetensors_model_open(name("index.json"), &model, &problem);

	assert_int_equal(model == NULL, r < 0);
	safetensors_model_free(model);
	return r;
}

static void a_model_is_opened_or_is_not(void **state)
{
	alloc_fault_each(open_model);
}

static int write_header(void)
{
	struct safetensors_header header = SAFETENSORS_HEADER_INIT;
	struct safetensors_tensor tensor = { .name = "a", .dtype = SAFETENSORS_U8 };
	struct safetensors_problem problem;
	char *bytes = NULL;
	size_t length;
	int r = safetensors_header_add(&header, &tensor, &problem);

	if (r == 0)
		r = safetensors_header_note(&header, "k", "v", &problem);
	if (r == 0)
		r = safetensors_header_write(&header, "model", &bytes, &length, &problem);
	safetensors_header_clear(&header);
	free(bytes);
	return r;
}

static void a_header_is_written_or_is_not(void **state)
{
	alloc_fault_each(write_header);
}

static struct safetensors_model *listed;

static int list_import(void)
{
	const struct import_options options = { .is_trainable = true };
	struct import_list list = { NULL };
	int code = import_list_read(&list, listed, &options);

	assert_true(code == COMMAND_DONE ? list.unit_count == 2 : code == COMMAND_FAILED);
	import_list_clear(&list);
	return code == COMMAND_DONE ? 0 : -ENOMEM;
}

static void an_import_is_listed_or_is_not(void **state)
{
	struct safetensors_problem problem;

	assert_int_equal(safetensors_model_open(name("model"), &listed, &problem), 0);
	alloc_fault_each(list_import);
	safetensors_model_free(listed);
}

static int read_ahead(void)
{
	_cleanup_close_ int fd = open(name("model"), O_RDONLY | O_CLOEXEC);
	struct ahead *ahead = NULL;
	const char *bytes;
	size_t length;
	int r = ahead_new(fd, 8, strlen(text), &ahead);

	if (r == 0) {
		assert_int_equal(ahead_look(ahead, 1, &bytes, &length), 0);
		assert_memory_equal(bytes, text, length);
	}
	ahead_free(ahead);
	return r;
}

static void a_file_is_read_ahead_or_is_not(void **state)
{
	alloc_fault_each(read_ahead);
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
