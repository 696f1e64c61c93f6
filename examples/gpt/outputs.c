#include "outputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_special(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static int open_output(const char *path, struct output *output)
{
	int r = 0;

	if (!path)
		return 0;
	output->path = path;
	if (!is_special(path) && asprintf(&output->partial, "%s.partial", path) < 0) {
		output->partial = NULL;
		r = -ENOMEM;
	}
	if (r == 0)
		output->file = fopen(output->partial ? output->partial : path, "we");
	if (r == 0 && !output->file)
		r = -errno;
	if (r < 0)
		fprintf(stderr, "gpt: %s: %s\n", path, strerror(-r));
	return r;
}

int outputs_open(const struct options *options, struct outputs *ret_outputs)
{
	int r;

	*ret_outputs = (struct outputs){ .json = { NULL } };
	if (options->rank != 0)
		return 0;
	r = open_output(options->json, &ret_outputs->json);
	return r == 0 ? open_output(options->dump, &ret_outputs->dump) : r;
}

static int keep(struct output *output)
{
	if (!output->file)
		return 0;
	if (fflush(output->file) != 0 || (output->partial && rename(output->partial, output->path) < 0)) {
		int r = -errno;

		fprintf(stderr, "gpt: %s: %s\n", output->path, strerror(-r));
		return r;
	}
	free(output->partial);
	output->partial = NULL;
	return 0;
}

int outputs_keep(struct outputs *outputs)
{
	int r = keep(&outputs->dump);

	return r == 0 ? keep(&outputs->json) : r;
}

static void close_output(struct output *output)
{
	if (output->file)
		fclose(output->file);
	if (output->file && output->partial)
		unlink(output->partial);
	free(output->partial);
	*output = (struct output){ NULL };
}

void outputs_close(struct outputs *outputs)
{
	close_output(&outputs->json);
	close_output(&outputs->dump);
}

static bool has_failed(const struct output *output)
{
	return output->file && ferror(output->file);
}

const char *outputs_failed(const struct outputs *outputs)
{
	if (has_failed(&outputs->json))
		return outputs->json.path;
	return has_failed(&outputs->dump) ? outputs->dump.path : NULL;
}
