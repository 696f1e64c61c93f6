#include "client/tierctl/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "client/tierctl/table.h"
#include "common/clock.h"

/* Between two looks at how far it is. */
#define PROGRESS_NS UINT64_C(500000000)

void progress_begin(struct progress *progress, bool is_json)
{
	*progress = (struct progress){ .is_json = is_json, .is_terminal = isatty(STDERR_FILENO) };
}

bool progress_is_due(struct progress *progress)
{
	uint64_t now = clock_now_ns();

	if (now < progress->next_ns || (!progress->is_json && !progress->is_terminal))
		return false;
	progress->next_ns = now + PROGRESS_NS;
	return true;
}

void progress_tell(struct progress *progress, uint64_t bytes, uint64_t all)
{
	char done_text[TEXT_SIZE], all_text[TEXT_SIZE];

	if (!progress_is_due(progress))
		return;
	if (progress->is_json) {
		printf("{\"event\":\"progress\",\"bytes\":%" PRIu64 ",\"of\":%" PRIu64 "}\n", bytes, all);
		fflush(stdout);
	} else {
		fprintf(stderr, "\r%3.0f %%, %s of %s\033[K", 100.0 * (double)bytes / (double)all,
			text_bytes(bytes, done_text), text_bytes(all, all_text));
	}
}

void progress_end(const struct progress *progress)
{
	if (progress->is_terminal && !progress->is_json)
		fputs("\r\033[K", stderr);
}
