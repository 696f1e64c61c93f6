/* What all that look at the machine need: what is configured, and a place for what they find. */
#include <stdarg.h>
#include <stdio.h>

#include "client/tierctl/doctor.h"

const char *const doctor_finding_names[] = { "found", "poor", "missing", "unknown" };

cJSON *doctor_add(struct doctor *doctor, enum finding finding, const char *what, const char *remedy,
		  const char *format, ...)
{
	cJSON *json = cJSON_CreateObject();
	char text[1536];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	cJSON_AddStringToObject(json, "what", what);
	cJSON_AddStringToObject(json, "finding", doctor_finding_names[finding]);
	cJSON_AddStringToObject(json, "text", text);
	if (remedy)
		cJSON_AddStringToObject(json, "remedy", remedy);
	cJSON_AddItemToArray(doctor->findings, json);
	return json;
}

const char *doctor_find_value(const struct doctor *doctor, const char *section, const char *key)
{
	const cJSON *object = cJSON_GetObjectItemCaseSensitive(doctor->configuration, section);
	const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return value ? value : "";
}
