#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct drop_flags {
	struct choice choice;
	bool is_forced, is_confirmed;
};

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
			code = choice_read_user(&flags->choice, optarg);
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
	flags->choice.job = arguments[optind];
	return code;
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
		code = choice_find(&flags.choice, jobs, &job);
	if (code == COMMAND_DONE && !flags.is_confirmed)
		code = ask_person(job);
	if (code != COMMAND_DONE)
		return code;
	drop.name = job->name;
	drop.has_owner = true;
	drop.owner = job->uid;
	drop.force = flags.is_forced;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_DROP;
	request.job_drop = &drop;
	return command_ask(ask, &request, &reply);
}
