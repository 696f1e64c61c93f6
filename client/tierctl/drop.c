#include "client/tierctl/command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct drop_flags {
	const char *job;
	bool has_user, is_forced, is_confirmed;
	uid_t user;
};

static int read_user(const char *text, uid_t *ret_user)
{
	const struct passwd *user = getpwnam(text);
	char *end;
	unsigned long number;

	if (user) {
		*ret_user = user->pw_uid;
		return COMMAND_DONE;
	}
	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end != '\0' || number >= UINT32_MAX)
		return command_fail(COMMAND_USAGE, "there is no user '%s'", text);
	*ret_user = (uid_t)number;
	return COMMAND_DONE;
}

static int read_flags(struct drop_flags *flags, int count, char *arguments[])
{
	static const struct option known[] = {
		{ "user", required_argument, NULL, 'u' },
		{ "force", no_argument, NULL, 'f' },
		{ "yes", no_argument, NULL, 'y' },
		{ NULL, 0, NULL, 0 },
	};
	int flag, code = COMMAND_DONE;

	optind = 0;
	while (code == COMMAND_DONE && (flag = getopt_long(count, arguments, ":", known, NULL)) != -1) {
		if (flag == 'u') {
			flags->has_user = true;
			code = read_user(optarg, &flags->user);
		} else if (flag == 'f') {
			flags->is_forced = true;
		} else if (flag == 'y') {
			flags->is_confirmed = true;
		} else {
			code = command_fail(COMMAND_USAGE,
					    flag == ':' ? "%s needs a value" : "unknown flag %s of drop",
					    arguments[optind - 1]);
		}
	}
	if (code == COMMAND_DONE && optind + 1 != count)
		return command_fail(COMMAND_USAGE, "drop takes the name of one job; see tierctl jobs");
	flags->job = arguments[optind];
	return code;
}

/* The named user's; else the caller's own, else the only one of that name. */
static int find_job(const Tierd__Wire__JobsReply *jobs, const struct drop_flags *flags,
		    const Tierd__Wire__JobEntry **ret_job)
{
	const Tierd__Wire__JobEntry *found = NULL;
	uid_t wanted = flags->has_user ? flags->user : geteuid();
	unsigned others = 0;

	for (size_t i = 0; i < jobs->n_jobs; i++) {
		const Tierd__Wire__JobEntry *job = jobs->jobs[i];

		if (strcmp(job->name, flags->job) != 0)
			continue;
		if (job->uid == wanted) {
			*ret_job = job;
			return COMMAND_DONE;
		}
		found = job;
		others++;
	}
	if (flags->has_user || others == 0)
		return command_fail(COMMAND_FAILED, "there is no job %s%s that you may see", flags->job,
				    flags->has_user ? " of that user" : "");
	if (others > 1)
		return command_fail(COMMAND_FAILED, "%u users have a job %s; say whose with --user", others,
				    flags->job);
	*ret_job = found;
	return COMMAND_DONE;
}

static int ask_person(const Tierd__Wire__JobEntry *job)
{
	char answer[16], owner[TEXT_SIZE], host[TEXT_SIZE], nvme[TEXT_SIZE];

	if (!isatty(STDIN_FILENO))
		return command_fail(COMMAND_USAGE, "there is no terminal to ask at; drop it with --yes");
	fprintf(stderr,
		"Job %s of %s stands at step %" PRIu64 ", with %zu of %u ranks, %s in host memory and %s on "
		"NVMe.\nDiscard its state? [y/N] ",
		job->name, command_user_name(job->uid, owner), job->step, job->n_members, job->world_size,
		text_bytes(job->host_bytes, host), text_bytes(job->nvme_bytes, nvme));
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED, "job %s stays", job->name);
}

int command_drop(const struct command_context *context, int count, char *arguments[])
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobDrop drop = TIERD__WIRE__JOB_DROP__INIT;
	const Tierd__Wire__JobEntry *job = NULL;
	const Tierd__Wire__JobsReply *jobs;
	const Tierd__Wire__Reply *reply;
	struct drop_flags flags = { 0 };
	int code = read_flags(&flags, count, arguments);

	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code == COMMAND_DONE)
		code = find_job(jobs, &flags, &job);
	if (code == COMMAND_DONE && !flags.is_confirmed)
		code = ask_person(job);
	if (code != COMMAND_DONE)
		return code;
	drop.name = (char *)flags.job;
	drop.has_owner = true;
	drop.owner = job->uid;
	drop.force = flags.is_forced;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_DROP;
	request.job_drop = &drop;
	return command_ask(ask, &request, &reply);
}
