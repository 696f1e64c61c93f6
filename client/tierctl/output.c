#include "client/tierctl/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tierctl/partial.h"
#include "client/tierctl/place.h"

struct output {
	char *path; /* NULL: the standard output */
	FILE *stream;
	struct partial *partial; /* NULL: what is written is there at once */
	bool may_replace;
};

struct output *output_free(struct output *output)
{
	if (!output)
		return NULL;
	if (output->stream && output->stream != stdout)
		fclose(output->stream);
	partial_free(output->partial);
	free(output->path);
	free(output);
	return NULL;
}

FILE *output_stream(const struct output *output)
{
	return output->stream;
}

const char *output_path(const struct output *output)
{
	return output->path;
}

bool output_replaces(const struct output *output)
{
	return output->partial && output->may_replace && access(partial_path(output->partial), F_OK) == 0;
}

/* ---- Which it is ---- */

/* Compares files, since a name such as /dev/stdout leads to one of another name, or of none. */
static bool is_standard_output(const char *path)
{
	struct stat named, standard;

	return strcmp(path, "-") == 0 || (stat(path, &named) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
					  named.st_dev == standard.st_dev && named.st_ino == standard.st_ino);
}

static bool is_folder(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A device or a pipe stays what it is. */
static bool is_written_in_place(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static int set_path(struct output *output, const char *path, const char *name)
{
	if (!name || !is_folder(path))
		output->path = strdup(path);
	else if (asprintf(&output->path, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name) < 0)
		output->path = NULL;
	return output->path ? COMMAND_DONE : command_fail_memory();
}

static int open_stream(struct output *output, int fd)
{
	output->stream = fd < 0 ? NULL : fdopen(fd, "w");
	if (output->stream)
		return COMMAND_DONE;
	fd_close(fd);
	return command_fail_at(COMMAND_FAILED, -errno, "%s: %s", output->path, strerror(errno));
}

/* Whoever reads what another user's pipe gets could be anybody. */
static int open_special(struct output *output)
{
	struct place place = PLACE_INIT;
	int code = place_find(output->path, "", &place), fd;

	if (code != COMMAND_DONE)
		return code;
	fd = place_open_special(&place);
	place_clear(&place);
	if (fd == -EPERM)
		return command_fail_at(COMMAND_FAILED, fd, "%s is a pipe of another user; name a file",
				       output->path);
	if (fd < 0)
		errno = -fd;
	return open_stream(output, fd);
}

static int open_file(struct output *output)
{
	int code;

	if (is_written_in_place(output->path))
		return open_special(output);
	code = partial_check(output->path, output->may_replace);
	if (code == COMMAND_DONE)
		code = partial_new(output->path, &output->partial);
	return code == COMMAND_DONE
		       ? open_stream(output, fcntl(partial_fd(output->partial), F_DUPFD_CLOEXEC, 0))
		       : code;
}

int output_open(const char *path, const char *name, bool may_replace, struct output **ret_output)
{
	_cleanup_(output_freep) struct output *output = calloc(1, sizeof(*output));
	int code = COMMAND_DONE;

	if (!output)
		return command_fail_memory();
	output->may_replace = may_replace;
	if (is_standard_output(path)) {
		output->stream = stdout;
	} else {
		code = set_path(output, path, name);
		if (code == COMMAND_DONE)
			code = open_file(output);
	}
	if (code == COMMAND_DONE)
		*ret_output = TAKE_PTR(output);
	return code;
}

/* ---- The end of it ---- */

int output_publish(struct output *output)
{
	bool is_written = fflush(output->stream) == 0 && !ferror(output->stream);

	if (is_written && output->partial)
		is_written = fsync(partial_fd(output->partial)) == 0;
	if (!is_written)
		return output->path ? command_fail_at(COMMAND_FAILED, -errno, "%s: %s", output->path,
						      strerror(errno))
				    : command_fail_output();
	return output->partial ? partial_publish(&output->partial, 1, output->may_replace) : COMMAND_DONE;
}
