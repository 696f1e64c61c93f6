#include "daemon/service/reload.h"

#include <string.h>

#include "common/log.h"
#include "daemon/service/config_options.h"

/* All values of the option; the caller frees the text. NULL: out of memory. */
static char *print_values(const struct config *config, const struct config_option *option)
{
	unsigned values = config_option_values(config, option);
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	if (!stream)
		return NULL;
	for (unsigned i = 0; i < values; i++) {
		fputs(i ? ", " : "", stream);
		config_option_print(config, option, i, stream);
	}
	if (values == 0)
		fputs(option->kind == CONFIG_WHO ? "nobody" : "none", stream);
	fclose(stream);
	return text;
}

static void exchange(const struct config_option *option, struct config *one, struct config *other)
{
	char *left = (char *)one + option->offset, *right = (char *)other + option->offset;

	for (size_t i = 0; i < option->size; i++) {
		char byte = left[i];

		left[i] = right[i];
		right[i] = byte;
	}
}

/* Returns whether it changes what is in effect. */
static bool take_over(struct config *config, struct config *fresh, const struct config_option *option)
{
	_cleanup_free_ char *before = print_values(config, option), *value = print_values(fresh, option);

	if (!before || !value) {
		log_error("%s in [%s] cannot be looked at: out of memory; it stays as it was", option->key,
			  option->section);
		return false;
	}
	if (strcmp(before, value) == 0)
		return false;
	if (!option->is_live) {
		log_warning(
			"%s in [%s] has changed in the configuration; it needs a restart of tierd to count",
			option->key, option->section);
		return false;
	}
	exchange(option, config, fresh);
	log_info("%s in [%s] is %s from now on", option->key, option->section, value);
	return true;
}

int reload(struct config *config, int argc, char *const argv[], struct config_problem *problem)
{
	_cleanup_(config_freep) struct config *fresh = NULL;
	unsigned changes = 0;
	int r = config_new(argc, argv, &fresh, problem);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < config_option_count; i++)
		changes += take_over(config, fresh, &config_options[i]);
	return (int)changes;
}
