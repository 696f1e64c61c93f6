#include "client/tierctl/configuration.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "client/tierctl/program.h"

/* ---- What tierd prints -----------------------------------------------------------------------------------
 */

/* "tierd: warning: the text", line by line. */
static void add_problems(cJSON *problems, char *text)
{
	static const char *const prefixes[] = { "tierd: ", "warning: ", "error: " };

	for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
			if (strncmp(line, prefixes[i], strlen(prefixes[i])) == 0)
				line += strlen(prefixes[i]);
		cJSON_AddItemToArray(problems, cJSON_CreateString(line));
	}
}

static void add_key(cJSON *section, char *line)
{
	char *value = strstr(line, " = ");
	cJSON *list;

	if (!section || !value)
		return;
	*value = '\0';
	value += strlen(" = ");
	/* Those that may be repeated. */
	if (strcmp(line, "path") != 0 && strcmp(line, "limit") != 0) {
		cJSON_AddStringToObject(section, line, value);
		return;
	}
	list = cJSON_GetObjectItemCaseSensitive(section, line);
	if (!list)
		list = cJSON_AddArrayToObject(section, line);
	cJSON_AddItemToArray(list, cJSON_CreateString(value));
}

static void add_configuration(cJSON *configuration, char *text)
{
	cJSON *section = NULL;

	for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (line[0] != '[') {
			add_key(section, line);
			continue;
		}
		line[strcspn(line, "]")] = '\0';
		section = cJSON_AddObjectToObject(configuration, line + 1);
	}
}

int configuration_read(const char *file, cJSON **ret_json)
{
	const char *arguments[] = { "tierd", "--check-config", file ? "--config" : NULL, file, NULL };
	struct program_result result = PROGRAM_RESULT_INIT;
	char path[PATH_MAX];
	int r = program_run(arguments, program_tierd(path), NULL, &result);
	cJSON *json;

	if (r < 0)
		return r;
	if (result.status == PROGRAM_NOT_FOUND) {
		program_result_clear(&result);
		return -ENOENT;
	}
	json = cJSON_CreateObject();
	cJSON_AddBoolToObject(json, "is_valid", result.status == 0);
	add_problems(cJSON_AddArrayToObject(json, "problems"), result.errors);
	add_configuration(cJSON_AddObjectToObject(json, "configuration"), result.output);
	program_result_clear(&result);
	if (!json)
		return -ENOMEM;
	*ret_json = json;
	return 0;
}

/* ---- The verb --------------------------------------------------------------------------------------------
 */

/* Prints in the format of the file, so that it can be read back. */
static void print_configuration(const cJSON *configuration)
{
	const cJSON *section, *key, *item;
	bool is_first = true;

	cJSON_ArrayForEach(section, configuration)
	{
		printf("%s[%s]\n", is_first ? "" : "\n", section->string);
		is_first = false;
		cJSON_ArrayForEach(key, section)
		{
			if (cJSON_IsString(key))
				printf("%s = %s\n", key->string, key->valuestring);
			cJSON_ArrayForEach(item, key) printf("%s = %s\n", key->string, item->valuestring);
		}
	}
}

int command_config(const struct command_context *context)
{
	const cJSON *problem;
	cJSON *json;
	bool is_valid;
	int r;

	r = configuration_read(context->arguments[1], &json);
	if (r == -ENOENT)
		return command_fail_at(COMMAND_FAILED, r,
				       "tierd, which checks it, is neither in $PATH nor at %s",
				       TIERD_PROGRAM);
	if (r < 0)
		return command_fail_at(COMMAND_FAILED, r, "tierd --check-config: %s", strerror(-r));
	is_valid = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "is_valid"));
	if (context->is_json) {
		r = command_print_json(json);
		return is_valid ? r : COMMAND_FAILED;
	}
	cJSON_ArrayForEach(problem, cJSON_GetObjectItemCaseSensitive(json, "problems"))
		command_fail(COMMAND_FAILED, "%s", problem->valuestring);
	print_configuration(cJSON_GetObjectItemCaseSensitive(json, "configuration"));
	cJSON_Delete(json);
	return is_valid ? COMMAND_DONE : COMMAND_FAILED;
}
