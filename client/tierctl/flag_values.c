#include "client/tierctl/flag_values.h"

#include <errno.h>
#include <string.h>

#include "client/tierctl/plan.h"
#include "client/tierd.h"

const char *const flag_formats[] = {
	[TIERD_FP32] = "fp32", [TIERD_BF16] = "bf16", [TIERD_FP16] = "fp16", NULL
};
const char *const flag_stages[] = { "0", "1", "2", "3", NULL };
const char *const flag_places[] = { [TIERD_PLACE_HOST] = "host", [TIERD_PLACE_NVME] = "nvme", NULL };

int flag_set_text(const struct flag_value *flag, const char *text, void *place)
{
	*(const char **)place = text;
	return 0;
}

static int set_within(const struct flag_value *flag, int r, uint64_t number, uint64_t *place)
{
	if (r == 0 && flag->most > 0 && (number == 0 || number > flag->most))
		r = -ERANGE;
	if (r == 0)
		*place = number;
	return r;
}

int flag_set_count(const struct flag_value *flag, const char *text, void *place)
{
	uint64_t number = 0;
	int r = plan_parse_count(text, &number);

	return set_within(flag, r, number, place);
}

int flag_set_bytes(const struct flag_value *flag, const char *text, void *place)
{
	uint64_t number = 0;
	int r = plan_parse_bytes(text, &number);

	return set_within(flag, r, number, place);
}

int flag_set_number(const struct flag_value *flag, const char *text, void *place)
{
	uint64_t number;
	int r = flag_set_count(flag, text, &number);

	if (r == 0)
		*(uint32_t *)place = (uint32_t)number;
	return r;
}

int flag_set_choice(const struct flag_value *flag, const char *text, void *place)
{
	/* The first number may have no name. */
	for (uint32_t i = 0; i == 0 || flag->choices[i]; i++)
		if (flag->choices[i] && strcmp(flag->choices[i], text) == 0) {
			*(uint32_t *)place = i;
			return 0;
		}
	return -EINVAL;
}

int flag_set_durability(const struct flag_value *flag, const char *text, void *place)
{
	return plan_parse_durability(text, place);
}

int flag_values_read(const struct command_context *context, const struct flag_value *flags, size_t count,
		     void *values)
{
	for (size_t i = 0; i < count; i++) {
		const struct flag_value *flag = &flags[i];
		const char *text = command_flag(context, flag->name);

		if (!text)
			continue;
		if (flag->set(flag, text, (char *)values + flag->place) < 0)
			return command_fail(COMMAND_USAGE, "--%s cannot be '%s'; it takes %s", flag->name,
					    text, flag->takes);
		if (flag->given > 0)
			*(bool *)((char *)values + flag->given) = true;
	}
	return COMMAND_DONE;
}
