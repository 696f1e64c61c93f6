#include "daemon/service/limit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/service/config_values.h"
#include "daemon/service/principal.h"
#include "offload/device/schedule.h"
#include "proto/vocabulary.h"

_Static_assert(SCHEDULE_MAX_SHARE == SCHEDULE_MAX_WEIGHT, "one bound for both");

/* Of at least 1M: a smaller one is a slip. */
static int read_size(const char *text, uint64_t *ret_word)
{
	return config_parse_size(text, ret_word) < 0 || *ret_word < MIB ? -EINVAL : 0;
}

static int read_snapshots(const char *text, uint64_t *ret_word)
{
	unsigned count;

	if (config_parse_count(text, &count) < 0 || count > WIRE_MAX_SNAPSHOTS)
		return -EINVAL;
	*ret_word = count + 1;
	return 0;
}

/* As a share and a weight are. */
static int read_part(const char *text, uint64_t *ret_word)
{
	unsigned part;

	if (config_parse_count(text, &part) < 0 || part < 1 || part > SCHEDULE_MAX_SHARE)
		return -EINVAL;
	*ret_word = part;
	return 0;
}

static const struct {
	const char *name;
	size_t offset;
	int (*read)(const char *text, uint64_t *ret_word);
} words[] = {
	{ "host_default", offsetof(struct quota, host_default), read_size },
	{ "host_maximum", offsetof(struct quota, host_maximum), read_size },
	{ "nvme_default", offsetof(struct quota, nvme_default), read_size },
	{ "nvme_maximum", offsetof(struct quota, nvme_maximum), read_size },
	{ "snapshots_default", offsetof(struct quota, snapshots_default), read_snapshots },
	{ "snapshots_maximum", offsetof(struct quota, snapshots_maximum), read_snapshots },
	{ "io_share", offsetof(struct quota, io_share), read_part },
	{ "io_weight_maximum", offsetof(struct quota, io_weight_maximum), read_part },
};

/* Each word once. */
static int set_word(struct quota *quota, char *word)
{
	char *value = strchr(word, '=');

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
		uint64_t *place = (uint64_t *)((char *)quota + words[i].offset);

		if (strcmp(words[i].name, word) == 0)
			return *place == 0 ? words[i].read(value, place) : -EINVAL;
	}
	return -EINVAL;
}

static int parse(const char *text, struct limit *ret_limit)
{
	_cleanup_free_ char *copy = strdup(text);
	struct limit limit = { 0 };
	char *place = NULL, *word;
	int r, count = 0;

	if (!copy)
		return -ENOMEM;
	word = strtok_r(copy, " \t", &place);
	r = word ? principal_parse(word, &limit.principal) : -EINVAL;
	for (; r == 0 && (word = strtok_r(NULL, " \t", &place)); count++)
		r = set_word(&limit.quota, word);
	if (r < 0 || count == 0)
		return r < 0 ? r : -EINVAL;
	limit.text = strdup(text);
	if (!limit.text)
		return -ENOMEM;
	*ret_limit = limit;
	return 0;
}

int limit_list_add(struct limit_list *list, const char *text)
{
	int r = list->count < LIMITS_MAXIMUM ? parse(text, &list->entries[list->count]) : -EINVAL;

	if (r == 0)
		list->count++;
	return r;
}

void limit_list_clear(struct limit_list *list)
{
	while (list->count > 0)
		free(list->entries[--list->count].text);
}
