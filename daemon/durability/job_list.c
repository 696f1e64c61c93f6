#include "daemon/durability/job_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void job_list_clear(struct job_list *list)
{
	while (list->path_count > 0)
		free(list->paths[--list->path_count].path);
	free(list->stores);
	*list = (struct job_list){ 0 };
}

/* ---- Paths ---- */

int job_list_find_path(const struct job_list *list, const uint8_t mark[MARK_BYTES])
{
	for (unsigned i = 0; i < list->path_count; i++)
		if (memcmp(list->paths[i].mark, mark, MARK_BYTES) == 0)
			return (int)i;
	return -1;
}

int job_list_set_path(struct job_list *list, const uint8_t mark[MARK_BYTES], const char *path)
{
	int index = job_list_find_path(list, mark);
	char *copy;

	if (index >= 0 && strcmp(list->paths[index].path, path) == 0)
		return index;
	if (index < 0 && list->path_count == JOB_LIST_MAX_PATHS)
		return -ENOSPC;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	if (index < 0) {
		index = (int)list->path_count++;
		list->paths[index] = (struct job_list_path){ .path = NULL };
		memcpy(list->paths[index].mark, mark, MARK_BYTES);
	}
	free(list->paths[index].path);
	list->paths[index].path = copy;
	return index;
}

void job_list_remove_path(struct job_list *list, unsigned path)
{
	free(list->paths[path].path);
	list->path_count--;
	memmove(&list->paths[path], &list->paths[path + 1],
		(list->path_count - path) * sizeof(list->paths[0]));
	for (size_t i = 0; i < list->store_count; i++)
		for (unsigned k = 0; k < list->stores[i].path_count; k++)
			list->stores[i].paths[k] -= list->stores[i].paths[k] > path;
}

/* ---- Stores ---- */

struct job_list_store *job_list_find(const struct job_list *list, const char *file)
{
	for (size_t i = 0; i < list->store_count; i++)
		if (strcmp(list->stores[i].file, file) == 0)
			return &list->stores[i];
	return NULL;
}

struct job_list_store *job_list_add(struct job_list *list, const char *file)
{
	struct job_list_store *store;

	if (list->store_count == list->store_capacity) {
		size_t capacity = list->store_capacity ? 2 * list->store_capacity : 16;
		struct job_list_store *stores = realloc(list->stores, capacity * sizeof(*stores));

		if (!stores)
			return NULL;
		list->stores = stores;
		list->store_capacity = capacity;
	}
	store = &list->stores[list->store_count++];
	*store = (struct job_list_store){ .path_count = 0 };
	memcpy(store->file, file, strlen(file) + 1);
	return store;
}

void job_list_remove(struct job_list *list, struct job_list_store *store)
{
	*store = list->stores[--list->store_count];
}

/* ---- Jobs ---- */

struct job_list_job *job_list_find_job(const struct job_list_store *store, const char *name)
{
	for (unsigned i = 0; i < store->job_count; i++)
		if (strcmp(store->jobs[i].name, name) == 0)
			return (struct job_list_job *)&store->jobs[i];
	return NULL;
}

int job_list_add_job(struct job_list_store *store, const char *name, uint64_t number)
{
	struct job_list_job *job = job_list_find_job(store, name);

	if (!job && store->job_count == JOB_LIST_MAX_JOBS)
		return -ENOSPC;
	job = job ?: &store->jobs[store->job_count++];
	*job = (struct job_list_job){ .number = number };
	memcpy(job->name, name, strlen(name) + 1);
	return 0;
}

void job_list_remove_job(struct job_list_store *store, const char *name)
{
	struct job_list_job *job = job_list_find_job(store, name);

	if (job)
		*job = store->jobs[--store->job_count];
}

bool job_list_is_given_up(const struct job_list_store *store)
{
	for (unsigned i = 0; i < store->job_count; i++)
		if (!store->jobs[i].is_given_up)
			return false;
	return true;
}
