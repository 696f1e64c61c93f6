#include "client/tierctl/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "client/tierctl/configuration.h"
#include "client/tierctl/plan.h"

/* ---- Before the first look -------------------------------------------------------------------------------
 */

static void take_configuration(struct doctor *doctor, const cJSON *json)
{
	const cJSON *problems = cJSON_GetObjectItemCaseSensitive(json, "problems"), *problem;
	bool is_valid = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "is_valid"));

	cJSON_ArrayForEach(problem, problems)
		doctor_add(doctor, is_valid ? FINDING_POOR : FINDING_MISSING, "configuration",
			   "see tierd.conf(5)", "%s", problem->valuestring);
	if (!is_valid)
		return;
	if (cJSON_GetArraySize(problems) == 0)
		doctor_add(doctor, FINDING_FOUND, "configuration", NULL, "nothing is wrong with it");
	doctor->configuration = cJSON_GetObjectItemCaseSensitive(json, "configuration");
	if (doctor->host_budget == 0)
		(void)plan_parse_bytes(doctor_find_value(doctor, "memory", "host_budget"),
				       &doctor->host_budget);
	doctor->connections = strtoull(doctor_find_value(doctor, "limits", "connections"), NULL, 10);
}

/* ---- The visit -------------------------------------------------------------------------------------------
 */

/* "FOLDER:SIZE", or more behind that. */
static void look_at_configured_path(struct doctor *doctor, const char *value)
{
	_cleanup_free_ char *path = strdup(value);
	char *colon = path ? strrchr(path, ':') : NULL;

	if (!colon)
		return;
	*colon = '\0';
	doctor_look_at_path(doctor, path);
}

/* Those that the daemon uses, else those that it would. */
static void look_at_paths(struct doctor *doctor)
{
	const cJSON *section = cJSON_GetObjectItemCaseSensitive(doctor->configuration, "nvme");
	const cJSON *paths = cJSON_GetObjectItemCaseSensitive(section, "path"), *path;

	for (size_t i = 0; doctor->node && i < doctor->node->n_paths; i++)
		doctor_look_at_path(doctor, doctor->node->paths[i]->path);
	if (!doctor->node)
		cJSON_ArrayForEach(path, paths) look_at_configured_path(doctor, path->valuestring);
	if (doctor->node ? doctor->node->n_paths == 0 : doctor->configuration && !paths)
		doctor_add(doctor, FINDING_POOR, "NVMe path", "path = FOLDER:SIZE in section [nvme]",
			   "none is configured: all state has to fit in host memory");
}

static void examine(struct doctor *doctor)
{
	doctor_look_at_io_uring(doctor);
	doctor_look_at_huge_pages(doctor);
	doctor_look_at_limits(doctor);
	look_at_paths(doctor);
	doctor_look_at_gpus(doctor);
}

/* ret_ask: stays open for what the daemon has said. */
static int visit(struct doctor *doctor, const struct command_context *context, struct ask **ret_ask,
		 const char *file)
{
	cJSON *json = NULL;
	int r;

	service_read(&doctor->service);
	if (doctor_look_for_daemon(doctor, context, ret_ask) != COMMAND_DONE) {
		service_clear(&doctor->service);
		return COMMAND_FAILED;
	}
	r = configuration_read(file, &json);
	if (r < 0)
		doctor_add(doctor, FINDING_UNKNOWN, "configuration", NULL,
			   r == -ENOENT ? "tierd is neither in $PATH nor at " TIERD_PROGRAM
					: "it cannot be read: no memory, or no processes");
	else
		take_configuration(doctor, json);
	examine(doctor);
	cJSON_Delete(json);
	service_clear(&doctor->service);
	return COMMAND_DONE;
}

/* ---- What is said ----------------------------------------------------------------------------------------
 */

static const char *text_of(const cJSON *finding, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(finding, key));

	return text ? text : "";
}

static bool is_well(const cJSON *findings)
{
	const cJSON *finding;

	cJSON_ArrayForEach(finding,
			   findings) if (strcmp(text_of(finding, "finding"),
						doctor_finding_names[FINDING_MISSING]) == 0) return false;
	return true;
}

static int print_table(const cJSON *findings)
{
	static const char *const titles[] = { "WHAT", "IS", "\"HERE", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	const cJSON *finding;

	if (!table)
		return command_print_table(NULL);
	cJSON_ArrayForEach(finding, findings)
	{
		const char *remedy = text_of(finding, "remedy");

		table_add(table, "%s", text_of(finding, "what"));
		table_add(table, "%s", text_of(finding, "finding"));
		table_add(table, "%s", text_of(finding, "text"));
		if (!*remedy)
			continue;
		table_add(table, "%s", "");
		table_add(table, "%s", "");
		table_add(table, "  remedy: %s", remedy);
	}
	return command_print_table(table);
}

static int print_json(cJSON *findings)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddBoolToObject(json, "is_well", is_well(findings));
	cJSON_AddItemToObject(json, "findings", findings);
	return command_print_json(json);
}

int command_doctor(const struct command_context *context)
{
	struct doctor doctor = { .is_quick = command_flag(context, "quick") };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	int code, result;

	doctor.findings = cJSON_CreateArray();
	code = visit(&doctor, context, &ask, context->arguments[0]);
	if (code != COMMAND_DONE) {
		cJSON_Delete(doctor.findings);
		return code;
	}
	result = is_well(doctor.findings) ? COMMAND_DONE : COMMAND_FAILED;
	if (context->is_json)
		return print_json(doctor.findings) == COMMAND_DONE ? result : COMMAND_FAILED;
	code = print_table(doctor.findings);
	cJSON_Delete(doctor.findings);
	return code == COMMAND_DONE ? result : code;
}
