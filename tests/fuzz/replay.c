/* Runs a fuzzer's entry over the files of a corpus, without a fuzzer: replay FOLDER… */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
/* Of those that have one. */
int LLVMFuzzerInitialize(int *count, char ***arguments) __attribute__((weak));

static int replay_file(const char *folder, const char *name)
{
	char path[4096];
	FILE *file;
	uint8_t *bytes;
	size_t length;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	if (!file)
		return -1;
	fseek(file, 0, SEEK_END);
	length = (size_t)ftell(file);
	rewind(file);
	/* Of the exact length, so that a sanitizer sees one byte too many. */
	bytes = malloc(length ? length : 1);
	if (!bytes || fread(bytes, 1, length, file) != length) {
		fclose(file);
		free(bytes);
		return -1;
	}
	fclose(file);
	LLVMFuzzerTestOneInput(bytes, length);
	free(bytes);
	return 0;
}

static int replay_folder(const char *path, unsigned *count)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int r = 0;

	if (!folder)
		return -1;
	while ((entry = readdir(folder)) && r == 0) {
		if (entry->d_name[0] == '.')
			continue;
		r = replay_file(path, entry->d_name);
		(*count)++;
	}
	closedir(folder);
	return r;
}

int main(int count, char *arguments[])
{
	unsigned files = 0;

	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&count, &arguments);
	for (int i = 1; i < count; i++) {
		if (replay_folder(arguments[i], &files) < 0) {
			perror(arguments[i]);
			return 1;
		}
	}
	printf("replayed %u files\n", files);
	return files == 0;
}
