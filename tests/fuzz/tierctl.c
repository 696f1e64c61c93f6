/* Fuzzes what tierctl makes of a daemon's answers and of its pages of statistics: the first byte is a
 * command, what follows are the answers. Commands print, or say what is wrong; they never read beyond what
 * came. */
#include <assert.h>
#include <stdlib.h>

#include "client/tierctl/arguments.h"
#include "client/tierctl/verbs.h"
#include "tests/fuzz/liar.h"

#define MAX_WORDS 3

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static const char *const commands[][MAX_WORDS] = {
	{ "ping" },
	{ "status" },
	{ "jobs" },
	{ "jobs", "job" },
	{ "units", "job" },
	{ "leases" },
	{ "leases", "job" },
	{ "evict", "job" },
	{ "tiers" },
	{ "top", "--once", "--interval=0.1" },
	{ "metrics" },
	{ "plan", "--parameters=7B", "--world-size=8" },
	{ "watch" },
	{ "verify", "job" },
	{ "scrub" },
	{ "tensors", "job" },
	{ "plan", "--like=job" },
};

static void run(const char *const words[MAX_WORDS], bool is_json, char *path)
{
	char *arguments[MAX_WORDS + 5] = { (char *)"tierctl", (char *)"--socket", path };
	struct command_context context = { .verbs = verbs };
	int count = 3;

	for (int i = 0; i < MAX_WORDS && words[i]; i++)
		arguments[count++] = (char *)words[i];
	if (is_json)
		arguments[count++] = (char *)"--json";
	assert(arguments_read(count, arguments, &context) == COMMAND_DONE);
	context.verb->run(&context);
	fflush(stdout);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct liar liar = { 0 };

	if (length == 0)
		return 0;
	/* Who plans is not asked. */
	setenv("TIERD", "/nonexistent", 1);
	liar_start(&liar, bytes + 1, length - 1);
	run(commands[(bytes[0] & 0x7f) % ARRAY_LENGTH(commands)], bytes[0] & 0x80, liar.peer.path);
	liar_stop(&liar);
	return 0;
}
