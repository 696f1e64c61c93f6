#include "daemon/limit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/config_values.h"

static const struct {
	const char *name;
	size_t offset;
} words[] = {
	{ "host_default", offsetof(struct quota, host_default) },
	{ "host_maximum", offsetof(struct quota, host_maximum) },
	{ "nvme_default", offsetof(struct quota, nvme_default) },
	{ "nvme_maximum", offsetof(struct quota, nvme_maximum) },
};

/* Each word once, of at least 1M: a smaller one is a slip. */
static int set_word(struct quota *quota, char *word)
{
	char *value = strchr(word, '=');
	uint64_t size;

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	if (config_parse_size(value, &size) < 0 || size < MIB)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
		uint64_t *place = (uint64_t *)((char *)quota + words[i].offset);

		if (strcmp(words[i].name, word) != 0)
			continue;
		if (*place != 0)
			return -EINVAL;
		*place = size;
		return 0;
	}
	return -EINVAL;
}

int limit_parse(const char *text, struct limit *ret_limit)
{
	_cleanup_free_ char *copy = strdup(text);
	struct limit limit = { 0 };
	char *place = NULL, *word;
	int r, count = 0;

	if (!copy)
		return -ENOMEM;
	word = strtok_r(copy, " \t", &place);
	r = word ? who_parse(word, &limit.who) : -EINVAL;
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
	int r = list->count < LIMIT_LIST_MAX ? limit_parse(text, &list->entries[list->count]) : -EINVAL;

	if (r == 0)
		list->count++;
	return r;
}

void limit_list_clear(struct limit_list *list)
{
	while (list->count > 0)
		free(list->entries[--list->count].text);
}
