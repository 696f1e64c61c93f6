#include "client/tierctl/complete.h"

#include <ctype.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "client/tierctl/verb.h"
#include "proto/socket_path.h"

/* Who types does not wait for a daemon that is stuck. */
#define PATIENCE_MS 300

struct line {
	const struct verb *verbs;
	const struct verb *verb;      /* NULL: it comes next */
	const struct verb_flag *flag; /* whose value comes next, or NULL */
	unsigned arguments;	      /* that are there */
	bool is_lost;		      /* there is no such verb */
	const char *socket, *current;
};

static void offer(const struct line *line, const char *prefix, const char *word, size_t length)
{
	char text[256];

	snprintf(text, sizeof(text), "%s%.*s", prefix, (int)length, word);
	if (strncmp(text, line->current, strlen(line->current)) == 0)
		puts(text);
}

static void offer_verbs(const struct line *line)
{
	for (const struct verb *verb = line->verbs; verb->name; verb++)
		offer(line, "", verb->name, strlen(verb->name));
}

static void offer_flags(const struct line *line, const struct verb_flag *flags)
{
	for (; flags && flags->name; flags++)
		offer(line, "--", flags->name, strlen(flags->name));
}

static void offer_jobs(const struct line *line)
{
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	_cleanup_(ask_freep) struct ask *ask = NULL;
	char buffer[SOCKET_PATH_SIZE];

	if (ask_open(socket_path_choose(line->socket, buffer), PATIENCE_MS, 0, &ask) < 0 ||
	    ask_request(ask, WIRE_REQUEST(JOBS_READ, jobs_read, &read), &reply) < 0 ||
	    reply->body_case != TIERD__WIRE__REPLY__BODY_JOBS)
		return;
	for (size_t i = 0; i < reply->jobs->n_jobs; i++)
		offer(line, "", reply->jobs->jobs[i]->name, strlen(reply->jobs->jobs[i]->name));
}

/* As the list of verbs names what a flag or an argument is. */
static void offer_values(const struct line *line, const char *what)
{
	if (strcmp(what, "JOB") == 0)
		offer_jobs(line);
	else if (strcmp(what, "COMMAND") == 0)
		offer_verbs(line);
	else if (strcmp(what, "FILE") == 0)
		puts(":file");
	else if (strcmp(what, "USER") == 0)
		puts(":user");
	else if (!isupper((unsigned char)what[0]))
		for (const char *word = what; *word; word += strspn(word, "|")) {
			offer(line, "", word, strcspn(word, "|"));
			word += strcspn(word, "|");
		}
}

static void read_flag(struct line *line, const char *text)
{
	size_t length = strcspn(text, "=");
	int own = line->verb ? verb_find_flag(line->verb->flags, text, length) : -1;
	int common = verb_find_flag(verb_common_flags, text, length);

	if (text[length] == '=' && common >= 0 && strncmp(text, "socket=", length + 1) == 0)
		line->socket = text + length + 1;
	else if (text[length] != '=' && own >= 0 && line->verb->flags[own].value)
		line->flag = &line->verb->flags[own];
	else if (text[length] != '=' && common >= 0 && verb_common_flags[common].value)
		line->flag = &verb_common_flags[common];
}

static void read_word(struct line *line, const char *word)
{
	/* Shells cut "--flag=value" in three. */
	if (line->flag && strcmp(word, "=") == 0)
		return;
	if (line->flag) {
		if (strcmp(line->flag->name, "socket") == 0)
			line->socket = word;
		line->flag = NULL;
	} else if (strncmp(word, "--", 2) == 0) {
		read_flag(line, word + 2);
	} else if (line->verb && word[0] == '-' && word[1] && !word[2]) {
		int own = verb_find_letter(line->verb->flags, word[1]);

		line->flag = own >= 0 ? &line->verb->flags[own] : NULL;
	} else if (!line->verb) {
		line->verb = verb_find(line->verbs, word);
		line->is_lost = !line->verb;
	} else {
		line->arguments++;
	}
}

void complete(const struct verb verbs[], int count, char *words[])
{
	struct line line = { .verbs = verbs, .current = count > 0 ? words[count - 1] : "" };
	struct verb_word word;

	for (int i = 0; i + 1 < count; i++)
		read_word(&line, words[i]);
	if (line.flag && strcmp(line.current, "=") == 0)
		line.current = "";
	if (line.is_lost)
		return;
	if (line.flag) {
		offer_values(&line, line.flag->value);
	} else if (line.current[0] == '-') {
		offer_flags(&line, line.verb ? line.verb->flags : NULL);
		offer_flags(&line, verb_common_flags);
	} else if (!line.verb) {
		offer_verbs(&line);
	} else if (verb_argument(line.verb, line.arguments, &word)) {
		offer_values(&line, word.text);
	}
}
