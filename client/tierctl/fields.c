#include "client/tierctl/fields.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME 64

/* "?key=name", taken apart. */
struct word {
	char key[MAX_NAME], name[MAX_NAME];
	bool is_optional;
};

static struct word read_word(const char *text, size_t length)
{
	struct word word = { .is_optional = *text == '?' };
	const char *end = text + length, *key = text + word.is_optional;
	const char *equals = memchr(key, '=', (size_t)(end - key)), *name = equals ? equals + 1 : key;

	snprintf(word.key, sizeof(word.key), "%.*s", (int)((equals ? equals : end) - key), key);
	snprintf(word.name, sizeof(word.name), "%.*s", (int)(end - name), name);
	return word;
}

static const ProtobufCFieldDescriptor *find(const ProtobufCMessage *message, const char *name)
{
	return protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
}

static const void *value_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
	return (const char *)message + field->offset;
}

static double number_of(const void *value, ProtobufCType type)
{
	if (type == PROTOBUF_C_TYPE_UINT32)
		return *(const uint32_t *)value;
	if (type == PROTOBUF_C_TYPE_FLOAT)
		return (double)*(const float *)value;
	assert(type == PROTOBUF_C_TYPE_UINT64);
	return (double)*(const uint64_t *)value;
}

static bool is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
	const void *value = value_of(message, field);
	const ProtobufCFieldDescriptor *has;
	char name[MAX_NAME + 4];

	snprintf(name, sizeof(name), "has_%s", field->name);
	has = find(message, name);
	if (has)
		return *(const protobuf_c_boolean *)value_of(message, has);
	return field->type == PROTOBUF_C_TYPE_STRING ? **(char *const *)value != '\0'
						     : number_of(value, field->type) != 0;
}

static cJSON *array_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
	size_t count = *(const size_t *)((const char *)message + field->quantifier_offset);
	const char *values = *(const char *const *)value_of(message, field);
	size_t size = field->type == PROTOBUF_C_TYPE_UINT32 ? sizeof(uint32_t) : sizeof(uint64_t);
	cJSON *json = cJSON_CreateArray();

	for (size_t i = 0; i < count; i++)
		cJSON_AddItemToArray(json, cJSON_CreateNumber(number_of(values + i * size, field->type)));
	return json;
}

static void add(cJSON *json, const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
		const char *key)
{
	const void *value = value_of(message, field);

	if (field->label == PROTOBUF_C_LABEL_REPEATED)
		cJSON_AddItemToObject(json, key, array_of(message, field));
	else if (field->type == PROTOBUF_C_TYPE_BOOL)
		cJSON_AddBoolToObject(json, key, *(const protobuf_c_boolean *)value);
	else if (field->type == PROTOBUF_C_TYPE_STRING)
		cJSON_AddStringToObject(json, key, *(const char *const *)value);
	else
		cJSON_AddNumberToObject(json, key, number_of(value, field->type));
}

void fields_add_known(cJSON *json, const ProtobufCMessage *message, bool is_known, const char *fields)
{
	for (size_t length; *fields; fields += length + strspn(fields + length, " ")) {
		length = strcspn(fields, " ");
		const struct word word = read_word(fields, length);
		const ProtobufCFieldDescriptor *field = find(message, word.name);

		assert(field);
		if (!is_known)
			cJSON_AddNullToObject(json, word.key);
		else if (!word.is_optional || is_set(message, field))
			add(json, message, field, word.key);
	}
}

void fields_add(cJSON *json, const ProtobufCMessage *message, const char *fields)
{
	fields_add_known(json, message, true, fields);
}

cJSON *fields_json(const ProtobufCMessage *message, const char *fields)
{
	cJSON *json = cJSON_CreateObject();

	fields_add(json, message, fields);
	return json;
}
