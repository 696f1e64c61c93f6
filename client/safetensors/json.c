#include "client/safetensors/json.h"

#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "proto/name.h"

#define MAX_DEPTH 32

void json_begin(struct json *json, char *text, size_t length, const char *file,
		struct safetensors_problem *problem)
{
	*json = (struct json){ .text = text, .length = length, .file = file, .problem = problem };
}

int json_fail(const struct json *json, const char *what)
{
	return safetensors_fail(json->problem, -EINVAL,
				"%s: %s, at byte %zu of its JSON; the file is damaged, or was made by a "
				"program that does not follow the format",
				json->file, what, json->at);
}

/* ---- Characters ---- */

static char peek(struct json *json)
{
	json->at += strspn(json->text + json->at, " \t\r\n");
	return json->text[json->at];
}

static bool take(struct json *json, char character)
{
	if (peek(json) != character)
		return false;
	json->at++;
	return true;
}

int json_expect(struct json *json, char character)
{
	char what[] = "'?' is missing";

	if (take(json, character))
		return 0;
	what[1] = character;
	return json_fail(json, what);
}

int json_end(struct json *json)
{
	peek(json);
	return json->at == json->length ? 0 : json_fail(json, "there is more behind its end");
}

/* ---- Strings ---- */

static int read_hexadecimal(struct json *json, uint32_t *ret_code)
{
	uint32_t code = 0;

	for (unsigned i = 0; i < 4; i++) {
		static const char digits[] = "0123456789abcdef";
		char character = json->text[json->at];
		const char *digit = character ? strchr(digits, character | 0x20) : NULL;

		if (!digit)
			return json_fail(json, "a \\u has no four hexadecimal digits");
		code = code << 4 | (uint32_t)(digit - digits);
		json->at++;
	}
	*ret_code = code;
	return 0;
}

static size_t encode(uint32_t code, char *target)
{
	if (code < 0x80) {
		target[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		target[0] = (char)(0xc0 | code >> 6);
		target[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		target[0] = (char)(0xe0 | code >> 12);
		target[1] = (char)(0x80 | (code >> 6 & 0x3f));
		target[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	target[0] = (char)(0xf0 | code >> 18);
	target[1] = (char)(0x80 | (code >> 12 & 0x3f));
	target[2] = (char)(0x80 | (code >> 6 & 0x3f));
	target[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/* What is behind "\u"; two of them make a character beyond U+FFFF. */
static int read_unicode(struct json *json, uint32_t *ret_code)
{
	uint32_t code = 0, low = 0;
	int r = read_hexadecimal(json, &code);

	if (r == 0 && code >= 0xd800 && code < 0xdc00) {
		if (strncmp(json->text + json->at, "\\u", 2) != 0)
			return json_fail(json, "half a character is escaped");
		json->at += 2;
		r = read_hexadecimal(json, &low);
		if (r == 0 && (low < 0xdc00 || low >= 0xe000))
			return json_fail(json, "half a character is escaped");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	} else if (r == 0 && (code == 0 || (code >= 0xdc00 && code < 0xe000))) {
		return json_fail(json, code ? "half a character is escaped"
					    : "a zero byte is escaped, which no name can have");
	}
	if (r == 0)
		*ret_code = code;
	return r;
}

static int read_escape(struct json *json, char **target)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	char character = json->text[json->at];
	const char *name = character ? strchr(names, character) : NULL;
	uint32_t code = 0;
	int r;

	if (name) {
		*(*target)++ = values[name - names];
		json->at++;
		return 0;
	}
	if (character != 'u')
		return json_fail(json, "an escape is unknown");
	json->at++;
	r = read_unicode(json, &code);
	if (r == 0)
		*target += encode(code, *target);
	return r;
}

/* What is decoded is never longer than what was read, so it fits there. */
int json_string(struct json *json, const char **ret_string)
{
	int r = json_expect(json, '"');
	char *begin = json->text + json->at, *target = begin;

	while (r == 0 && json->text[json->at] != '"') {
		const char *source = json->text + json->at;
		size_t length = name_kept_character(source);

		if (*source == '\\') {
			json->at++;
			r = read_escape(json, &target);
			continue;
		}
		if (length == 0)
			return json_fail(json, json->at == json->length
						       ? "a string does not end"
						       : "a string is not UTF-8, or has a control character");
		memmove(target, source, length);
		target += length;
		json->at += length;
	}
	if (r < 0)
		return r;
	json->at++;
	*target = '\0';
	*ret_string = begin;
	return 0;
}

/* ---- Other values ---- */

int json_number(struct json *json, uint64_t *ret_number)
{
	char first = peek(json);
	uint64_t number = 0;
	size_t digits = strspn(json->text + json->at, "0123456789");

	if (digits == 0 || (first == '0' && digits > 1))
		return json_fail(json, "no whole number is there");
	for (size_t i = 0; i < digits; i++)
		if (!size_multiply(number, 10, &number) ||
		    !size_add(number, (uint64_t)(json->text[json->at + i] - '0'), &number)) {
			json_fail(json, "a number does not fit into 64 bits");
			return -ERANGE;
		}
	json->at += digits;
	if (json->text[json->at] && strchr(".eE", json->text[json->at]))
		return json_fail(json, "a number is not a whole one");
	*ret_number = number;
	return 0;
}

static bool take_word(struct json *json, const char *word)
{
	size_t length = strlen(word);

	peek(json);
	if (strncmp(json->text + json->at, word, length) != 0)
		return false;
	json->at += length;
	return true;
}

bool json_take_null(struct json *json)
{
	return take_word(json, "null");
}

/* ---- Objects and arrays ---- */

/* Brackets are "{}" or "[]". */
static int read_members(struct json *json, const char *brackets,
			int (*read)(struct json *json, const char *name, void *context), void *context)
{
	int r = json_expect(json, brackets[0]);
	bool has_more = r == 0 && !take(json, brackets[1]);

	while (r == 0 && has_more) {
		const char *name = NULL;

		if (*brackets == '{')
			r = json_string(json, &name);
		if (r == 0 && name)
			r = json_expect(json, ':');
		if (r == 0)
			r = read(json, name, context);
		has_more = r == 0 && take(json, ',');
		if (r == 0 && !has_more)
			r = json_expect(json, brackets[1]);
	}
	return r;
}

int json_object(struct json *json, int (*read)(struct json *json, const char *name, void *context),
		void *context)
{
	return read_members(json, "{}", read, context);
}

int json_array(struct json *json, int (*read)(struct json *json, const char *name, void *context),
	       void *context)
{
	return read_members(json, "[]", read, context);
}

/* ---- Values that are skipped ---- */

static int skip_number(struct json *json)
{
	size_t length = strspn(json->text + json->at, "+-.0123456789eE");

	if (length == 0)
		return json_fail(json, "a value is missing");
	json->at += length;
	return 0;
}

/* depth: of the value, an unsigned. */
static int skip(struct json *json, const char *name, void *depth)
{
	unsigned below = *(const unsigned *)depth + 1;
	const char *string;
	char first = peek(json);

	if (below > MAX_DEPTH + 1)
		return json_fail(json, "values lie more than 32 deep");
	if (first == '{')
		return json_object(json, skip, &below);
	if (first == '[')
		return json_array(json, skip, &below);
	if (first == '"')
		return json_string(json, &string);
	if (take_word(json, "true") || take_word(json, "false") || take_word(json, "null"))
		return 0;
	return skip_number(json);
}

int json_skip(struct json *json)
{
	return skip(json, NULL, &(unsigned){ 0 });
}
