/* The options: every key of the configuration file, its flag, its limits, and where its value is kept. */
#ifndef TIERD_DAEMON_CONFIG_OPTIONS_H
#define TIERD_DAEMON_CONFIG_OPTIONS_H

#include "daemon/service/config.h"

#define CONFIG_MAX_OPTIONS 64

enum config_kind {
	CONFIG_TEXT,
	CONFIG_SIZE,
	CONFIG_COUNT,
	CONFIG_CHOICE,
	CONFIG_COUNT_OR_CHOICE,
	CONFIG_PATHS,
	CONFIG_WHO,
	CONFIG_LIMITS,
	CONFIG_KINDS
};

struct config_choice {
	const char *name; /* NULL ends the list */
	unsigned value;
};

struct config_option {
	const char *section, *key;
	const char *flag, *argument, *help; /* help NULL: not listed */
	enum config_kind kind;
	size_t offset, size; /* of the place in struct config */
	uint64_t minimum, maximum;
	const struct config_choice *choices;
	bool is_live; /* a reload changes it while the daemon runs; never a text or path */
};

extern const struct config_option config_options[];
extern const unsigned config_option_count;

/* NULL: there is none. */
const struct config_option *config_option_find(const char *section, const char *key);

/* Is there a section of this name? */
bool config_section_exists(const char *section);

/* All of them, for a person: "daemon, memory, …". */
void config_sections_describe(char *text, size_t size);

/* -EINVAL: not what the option takes; -ENOMEM. */
int config_option_set(struct config *config, const struct config_option *option, const char *value);

/* What the option takes, for a person. */
void config_option_describe(const struct config_option *option, char *text, size_t size);

/* Lines "key = value" that the file would have of it, and what stands there in one of them. */
unsigned config_option_values(const struct config *config, const struct config_option *option);
void config_option_print(const struct config *config, const struct config_option *option, unsigned index,
			 FILE *stream);

#endif
