#include "daemon/service/config_values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"

static const char suffixes[] = "KMGT";

/* ret_end: the first character that is not a digit. */
static int parse_digits(const char *text, uint64_t *ret_number, const char **ret_end)
{
	uint64_t number = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++)
		if (!size_multiply(number, 10, &number) ||
		    !size_add(number, (uint64_t)(*text - '0'), &number))
			return -ERANGE;
	*ret_number = number;
	*ret_end = text;
	return 0;
}

int config_parse_size(const char *text, uint64_t *ret_size)
{
	const char *end, *suffix;
	uint64_t size;
	int r = parse_digits(text, &size, &end);

	if (r < 0)
		return r;
	if (*end != '\0') {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1] != '\0')
			return -EINVAL;
		if (!size_multiply(size, UINT64_C(1) << 10 * (suffix - suffixes + 1), &size))
			return -ERANGE;
	}
	*ret_size = size;
	return 0;
}

int config_parse_count(const char *text, unsigned *ret_count)
{
	const char *end;
	uint64_t count;
	int r = parse_digits(text, &count, &end);

	if (r < 0)
		return r;
	if (*end != '\0')
		return -EINVAL;
	if (count > UINT_MAX)
		return -ERANGE;
	*ret_count = (unsigned)count;
	return 0;
}

/* "SIZE", or "SIZE,ENDURANCE". */
static int parse_sizes(const char *text, uint64_t *ret_capacity, uint64_t *ret_endurance)
{
	const char *comma = strchr(text, ',');
	_cleanup_free_ char *capacity = comma ? strndup(text, (size_t)(comma - text)) : strdup(text);
	uint64_t endurance = 0;
	int r = comma ? config_parse_size(comma + 1, &endurance) : 0;

	if (r == 0 && comma && endurance == 0)
		return -EINVAL;
	if (r == 0)
		r = capacity ? config_parse_size(capacity, ret_capacity) : -ENOMEM;
	if (r == 0)
		*ret_endurance = endurance;
	return r;
}

int config_parse_path(const char *text, char **ret_path, uint64_t *ret_capacity, uint64_t *ret_endurance)
{
	const char *colon = strrchr(text, ':');
	uint64_t capacity = 0, endurance = 0;
	char *path;
	int r;

	if (!colon || colon == text)
		return -EINVAL;
	r = parse_sizes(colon + 1, &capacity, &endurance);
	if (r < 0)
		return r;
	path = strndup(text, (size_t)(colon - text));
	if (!path)
		return -ENOMEM;
	*ret_path = path;
	*ret_capacity = capacity;
	*ret_endurance = endurance;
	return 0;
}

void config_format_size(uint64_t size, char text[CONFIG_SIZE_TEXT])
{
	int power = 0;

	while (suffixes[power] != '\0' && size != 0 && size % KIB == 0) {
		size /= KIB;
		power++;
	}
	if (power == 0)
		snprintf(text, CONFIG_SIZE_TEXT, "%" PRIu64, size);
	else
		snprintf(text, CONFIG_SIZE_TEXT, "%" PRIu64 "%c", size, suffixes[power - 1]);
}
