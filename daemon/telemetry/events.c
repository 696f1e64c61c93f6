#include "daemon/telemetry/events.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/clock.h"
#include "daemon/model/model.h"
#include "daemon/telemetry/log_limit.h"
#include "daemon/telemetry/own.h"
#include "daemon/telemetry/watch.h"

/* That have limits of their own at the same time. */
#define LIMITED_USERS 16
#define TEXT_BYTES 1024

/* Those that an administrator would wait for have an id, the same in all versions: docs/administration.md
 * lists them. */
static const struct kind {
	const char *name;
	enum log_level level;
	const char *id;
	bool is_public, is_step;
} kinds[] = {
	[EVENT_OPENED] = { "opened", LOG_LEVEL_DEBUG },
	[EVENT_ATTACHED] = { "attached", LOG_LEVEL_DEBUG },
	[EVENT_LEFT] = { "left", LOG_LEVEL_DEBUG },
	[EVENT_LOST] = { "lost", LOG_LEVEL_DEBUG },
	[EVENT_INITIALIZED] = { "initialized", LOG_LEVEL_INFO },
	[EVENT_READY] = { "ready", LOG_LEVEL_DEBUG },
	[EVENT_EPOCH_ENDED] = { "epoch-ended", LOG_LEVEL_INFO, "2ddd423b91034d82aa031d0f25a6c225" },
	[EVENT_WAITING] = { "waiting", LOG_LEVEL_INFO },
	[EVENT_APPLIED] = { "applied", LOG_LEVEL_DEBUG, .is_step = true },
	[EVENT_SKIPPED] = { "skipped", LOG_LEVEL_INFO },
	[EVENT_DURABLE] = { "durable", LOG_LEVEL_DEBUG, .is_step = true },
	[EVENT_SNAPSHOT_TAKEN] = { "snapshot-taken", LOG_LEVEL_INFO },
	[EVENT_SNAPSHOT_DELETED] = { "snapshot-deleted", LOG_LEVEL_INFO },
	[EVENT_RESERVED] = { "reserved", LOG_LEVEL_INFO },
	[EVENT_RETAINED] = { "retained", LOG_LEVEL_INFO },
	[EVENT_SHARED] = { "shared", LOG_LEVEL_INFO },
	[EVENT_FORKED] = { "forked", LOG_LEVEL_INFO },
	[EVENT_SNAPSHOT_FAILED] = { "snapshot-failed", LOG_LEVEL_WARNING,
				    "a1a75d97d4484d039c351b99d17d9b31" },
	[EVENT_ROLLED_BACK] = { "rolled-back", LOG_LEVEL_INFO, "b48ce27452104d27a7168b7419caf11e" },
	[EVENT_BROKEN] = { "broken", LOG_LEVEL_ERROR, "cc4764cb758340788b726ddcbc01362b" },
	[EVENT_RELEASED] = { "released", LOG_LEVEL_INFO },
	[EVENT_RESTORED] = { "restored", LOG_LEVEL_INFO },
	[EVENT_RETURNED] = { "returned", LOG_LEVEL_INFO },
	[EVENT_EVICTED] = { "evicted", LOG_LEVEL_INFO },
	[EVENT_DROPPED] = { "dropped", LOG_LEVEL_INFO },
	[EVENT_WITHHELD] = { "withheld", LOG_LEVEL_WARNING, "3b6d0c8e97f24b1fa4d5e2c1708f9a36" },
	[EVENT_REFUSED] = { "refused", LOG_LEVEL_INFO, "6b0b124ab5114fe4bb972603abc110d4" },
	[EVENT_READ_FAILED] = { "read-failed", LOG_LEVEL_ERROR, "d5da007499d54076822fff7cf65aa5d8" },
	[EVENT_DAMAGED] = { "damaged", LOG_LEVEL_ERROR, "1f9abf712ddd4e14a4abc39b286add74" },
	[EVENT_REMOVED] = { "store-removed", LOG_LEVEL_ERROR, "c1151df1e2ac4fafa0e4da2e961a0944" },
	[EVENT_MENDED] = { "mended", LOG_LEVEL_WARNING, "5e0c9d1f2b7a4c6e8d3f90a1b2c47d58" },
	[EVENT_SCRUBBED] = { "scrubbed", LOG_LEVEL_INFO },
	[EVENT_WORN] = { "worn", LOG_LEVEL_WARNING, "50dce08f566b40e08de49c93aeb1d02b" },
	[EVENT_WRITE_FAILED] = { "write-failed", LOG_LEVEL_WARNING, "0f41672145da4594bde402ba0595430f" },
	[EVENT_THROWN_OUT] = { "thrown-out", LOG_LEVEL_WARNING, "27ce6b8141f04dbd9216c557f4d9af23" },
	[EVENT_CLIENT_REFUSED] = { "client-refused", LOG_LEVEL_INFO, "c9268ad75eb14b2a893f115efc4f4394" },
	[EVENT_RANK_REFUSED] = { "client-refused", LOG_LEVEL_DEBUG, "c9268ad75eb14b2a893f115efc4f4394" },
	[EVENT_CLIENT_LOST] = { "client-lost", LOG_LEVEL_WARNING },
	[EVENT_RANK_UNSERVED] = { "client-lost", LOG_LEVEL_DEBUG },
	[EVENT_NOT_CONNECTED] = { "not-connected", LOG_LEVEL_WARNING },
	[EVENT_DRAINING] = { "draining", LOG_LEVEL_INFO, .is_public = true },
	[EVENT_DRAIN_ENDED] = { "drain-ended", LOG_LEVEL_INFO, .is_public = true },
	[EVENT_RELOADED] = { "reloaded", LOG_LEVEL_INFO },
	[EVENT_STOPPING] = { "stopping", LOG_LEVEL_INFO, .is_public = true },
};

/* Of each user; NOBODY: of the node. */
#define NOBODY ((uid_t)-1)
struct user_limit {
	uid_t uid;
	struct log_limit limit;
};

/* A place that nobody has needed for as long as its lines count goes to another user; if there is none, he
 * shares the one that has been there longest. */
static struct log_limit *limit_of(struct user_limit *limits, uid_t uid, uint64_t now_ns)
{
	struct user_limit *oldest = &limits[0];

	for (struct user_limit *limit = limits; limit < limits + LIMITED_USERS; limit++) {
		if (limit->uid == uid && limit->limit.began_ns > 0)
			return &limit->limit;
		if (limit->limit.began_ns < oldest->limit.began_ns)
			oldest = limit;
	}
	if (now_ns - oldest->limit.began_ns >= LOG_LIMIT_SECONDS * UINT64_C(1000000000)) {
		oldest->uid = uid;
		oldest->limit.lines = 0;
	}
	return &oldest->limit;
}

/* What goes wrong has a limit of its own: plain news, however much, does not keep it out. */
static bool may_log(enum log_level level, const uid_t *user)
{
	static struct user_limit limits[2][LIMITED_USERS];
	uint64_t now = clock_now_ns();
	struct log_limit *limit;

	if (!log_takes(level))
		return false;
	if (level >= LOG_LEVEL_DEBUG)
		return true;
	limit = limit_of(limits[level <= LOG_LEVEL_WARNING], user ? *user : NOBODY, now);
	limit->what = "lines about users and their jobs";
	return log_limit_allows(limit, now);
}

static void log_event(const struct kind *kind, const struct log_fields *fields, const char *text)
{
	if (fields->job)
		log_about(kind->level, fields, "job %s of user %u: %s", fields->job, (unsigned)*fields->user,
			  text);
	else
		log_about(kind->level, fields, "%s", text);
}

static void tell(struct node *node, const struct job *job, const struct kind *kind, struct log_fields *fields,
		 const char *format, va_list arguments)
{
	bool is_logged = may_log(kind->level, fields->user);
	char text[TEXT_BYTES];

	if (!is_logged && queue_is_empty(&node->telemetry->watches))
		return;
	vsnprintf(text, sizeof(text), format, arguments);
	fields->id = kind->id;
	if (is_logged)
		log_event(kind, fields, text);
	watch_tell(node, &(struct watch_news){
				 .event = kind->name,
				 .job = job,
				 .is_public = kind->is_public,
				 .is_step = kind->is_step,
				 .level = kind->level,
				 .fields = fields,
				 .text = text,
			 });
}

void events_of_job(const struct job *job, enum event_kind kind, const struct log_fields *about,
		   const char *format, ...)
{
	struct log_fields fields = about ? *about : (struct log_fields){ 0 };
	va_list arguments;

	fields.job = job->name;
	fields.user = &job->uid;
	if (!fields.step)
		fields.step = &job->step;
	va_start(arguments, format);
	tell(job->node, job, &kinds[kind], &fields, format, arguments);
	va_end(arguments);
}

void events_of_node(struct node *node, enum event_kind kind, const struct log_fields *about,
		    const char *format, ...)
{
	struct log_fields fields = about ? *about : (struct log_fields){ 0 };
	va_list arguments;

	va_start(arguments, format);
	tell(node, NULL, &kinds[kind], &fields, format, arguments);
	va_end(arguments);
}
