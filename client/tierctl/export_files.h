/* The files of an export: their names, which tensors each has, what they begin with, and their index. */
#ifndef TIERD_CLIENT_TIERCTL_EXPORT_FILES_H
#define TIERD_CLIENT_TIERCTL_EXPORT_FILES_H

#include "client/safetensors/header.h"
#include "client/tierctl/export_list.h"

struct export_file {
	char *path;
	struct safetensors_header header; /* the tag of a tensor is its number in the list */
	char *bytes;			  /* of the file's beginning */
	size_t length;
	size_t first, count; /* tensors of the list */
};

struct export_files {
	struct export_file *files;
	size_t count, capacity;
	char *index_path; /* NULL: there is one file, and no index */
	char *index;
	size_t index_length;
	uint64_t bytes; /* of all of them */
	char step[24];
};

/* What they are called and have. Target is a file, or a folder that is there; shard_bytes 0: one file, else
 * tensors of so many bytes in each, or one that is larger alone. An exit code, after a message. */
int export_files_plan(struct export_files *files, const struct export_list *list, const char *target,
		      uint64_t shard_bytes);

/* What they begin with, for values of this step. */
int export_files_begin(struct export_files *files, const struct export_list *list, const char *job,
		       uint64_t step);
void export_files_clear(struct export_files *files);

#endif
