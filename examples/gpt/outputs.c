#include "outputs.h"

#include <errno.h>
#include <string.h>

static int open_file(const char *path, FILE **ret_file)
{
	FILE *file;

	if (!path)
		return 0;
	file = fopen(path, "we");
	if (!file) {
		int r = -errno;

		fprintf(stderr, "gpt: %s: %s\n", path, strerror(-r));
		return r;
	}
	*ret_file = file;
	return 0;
}

int outputs_open(const struct options *options, struct outputs *ret_outputs)
{
	int r;

	*ret_outputs = (struct outputs){ NULL };
	if (options->rank != 0)
		return 0;
	r = open_file(options->json, &ret_outputs->json);
	if (r == 0)
		r = open_file(options->dump, &ret_outputs->dump);
	return r;
}

void outputs_close(struct outputs *outputs)
{
	if (outputs->json)
		fclose(outputs->json);
	if (outputs->dump)
		fclose(outputs->dump);
	*outputs = (struct outputs){ NULL };
}

const char *outputs_failed(const struct outputs *outputs, const struct options *options)
{
	if (outputs->json && ferror(outputs->json))
		return options->json;
	return outputs->dump && ferror(outputs->dump) ? options->dump : NULL;
}
