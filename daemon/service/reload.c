#include "daemon/service/reload.h"

#include "common/log.h"
#include "daemon/service/config_options.h"

static void describe(const struct config *config, const struct config_option *option, char *text, size_t size)
{
	FILE *stream = fmemopen(text, size, "w");

	text[0] = '\0';
	if (!stream)
		return;
	config_option_print(config, option, stream);
	fclose(stream);
}

/* Returns whether it changes what is in effect. */
static bool take_over(struct config *config, struct config *fresh, const struct config_option *option)
{
	char value[256];

	if (config_option_equal(option, config, fresh))
		return false;
	if (!option->is_live) {
		log_warning(
			"%s in [%s] has changed in the configuration; it needs a restart of tierd to count",
			option->key, option->section);
		return false;
	}
	config_option_exchange(option, config, fresh);
	describe(config, option, value, sizeof(value));
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
