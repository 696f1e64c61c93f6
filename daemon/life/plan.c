#include "daemon/life/plan.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "daemon/life/life.h"
#include "daemon/life/setup.h"
#include "daemon/resources/resources.h"
#include "proto/status.h"

/* More than any job can take, and little enough to be added to. */
#define PLENTY (UINT64_C(1) << 60)

/* ---- A node ---- */

struct place {
	struct event_base *loop;
	struct node *node;
};

static void place_clear(struct place *place)
{
	node_free(place->node);
	if (place->loop)
		event_base_free(place->loop);
}

/* A plan's jobs end with it. Nobody else is there who could give anything up. */
static const struct holder *const nobody[] = { NULL };

static int open_parts(struct node *node, const struct node_config *config)
{
	return node_life_new(node);
}

static const struct node_parts parts = {
	.holders = nobody, .open = open_parts, .close = node_life_free, .life = &life_callbacks
};

static int place_init(struct place *place)
{
	static const struct node_config config = { .settings = NODE_SETTINGS_INIT,
						   .workers = 1,
						   .queue_depth = 1,
						   .background_bytes = MIB,
						   .is_plain_io = true };

	place->loop = loop_new();
	return place->loop ? node_new(place->loop, &config, &parts, &place->node) : -ENOMEM;
}

/* As much as anybody wants, and one path at least: a plan says what is needed there before somebody buys it.
 */
static void furnish(struct node *node, const Tierd__Wire__NodeReply *like)
{
	budget_pretend(node, 0);
	node->settings.host_budget = PLENTY;
	node->staging->count = node_staging_count(like ? like->host_budget_bytes : PLENTY);
	node->path_count = like && like->n_paths > 1 ? (unsigned)like->n_paths : 1;
	for (unsigned i = 0; i < node->path_count; i++)
		node->paths[i] = (struct node_path){ .capacity = PLENTY, .directory_fd = -1 };
}

/* Caches shrink for who needs the memory, and idle jobs give theirs up. */
static void furnish_as(struct node *node, const Tierd__Wire__NodeReply *like, bool is_alone)
{
	uint64_t used =
		size_rest(like->host_used_bytes, size_sum(like->host_cache_bytes, like->host_idle_bytes));

	node->settings.host_budget = like->host_budget_bytes;
	node->staging->count = node_staging_count(node->settings.host_budget);
	budget_pretend(node, is_alone ? staging_bytes(node->staging->count) : used);
	node->path_count = (unsigned)like->n_paths;
	for (unsigned i = 0; i < node->path_count; i++)
		node->paths[i] = (struct node_path){ .path = like->paths[i]->path,
						     .capacity = like->paths[i]->capacity_bytes,
						     .used = is_alone ? 0 : like->paths[i]->used_bytes,
						     .directory_fd = -1 };
}

/* It has what it was made with again. */
static void unfurnish(struct node *node)
{
	node->path_count = 0;
	budget_pretend(node, 0);
	node->staging->count = STAGING_LEAST;
}

/* ---- A job ---- */

#define MESSAGE_BYTES sizeof(((struct setup *)NULL)->message)

static int define(struct job *job, const Tierd__Wire__PlanRequest *request, char message[MESSAGE_BYTES])
{
	int r = 0;

	for (size_t i = 0; i < request->n_units && r == 0; i++)
		r = job_add_unit(job, request->units[i], message, MESSAGE_BYTES);
	return r;
}

/* What the user's other jobs have taken nobody else may take for him: the rest is all that he has. */
static uint64_t left_of(uint64_t maximum, uint64_t held, bool is_alone)
{
	return maximum == 0 || is_alone ? maximum : held < maximum ? maximum - held : 1;
}

static struct quota quota_of(const Tierd__Wire__UserLimits *limits, bool is_alone)
{
	if (!limits)
		return (struct quota){ 0 };
	return (struct quota){ .host_default = limits->host_default,
			       .host_maximum = left_of(limits->host_maximum, limits->host_held, is_alone),
			       .nvme_default = limits->nvme_default,
			       .nvme_maximum = left_of(limits->nvme_maximum, limits->nvme_held, is_alone) };
}

static int make(struct node *node, const Tierd__Wire__PlanRequest *request, const Tierd__Wire__JobOpen *open,
		struct quota quota, struct job **ret_job, char message[MESSAGE_BYTES])
{
	struct optimizer_group groups[WIRE_MAX_GROUPS];
	struct job_options options;
	struct job *job;
	int r = options_read(&options, groups, open, node->path_count > 0, message, MESSAGE_BYTES);

	if (r == 0) {
		snprintf(message, MESSAGE_BYTES, "out of memory");
		r = job_new(node, geteuid(), &quota, open->name, &options, &job);
	}
	if (r < 0)
		return r;
	r = define(job, request, message);
	if (r < 0) {
		job_free(job);
		return r;
	}
	*ret_job = job;
	return 0;
}

static void set_needs(const struct setup *setup, Tierd__Wire__PlanNeeds *needs)
{
	const struct job *job = setup->job;

	needs->host_bytes = budget_host_bytes(job) - budget_cache_bytes(job);
	needs->parameter_bytes = setup->arena_bytes;
	needs->sum_bytes = setup->needs.sums;
	needs->buffer_bytes = setup->needs.gradients + setup->needs.spares;
	needs->state_bytes = setup->needs.state;
	needs->nvme_bytes = budget_nvme_bytes(job);
	needs->path_bytes = setup->device_bytes + setup->sums_device_bytes;
	needs->has_nvme_parameters = job->location.has_nvme_parameters;
	needs->has_nvme_optimizer = job->location.has_nvme_optimizer;
	needs->has_nvme_sums = job->location.has_nvme_sums;
}

/* Everything up to the moment in which memory and disk would be reserved. */
static int try(struct job *job, Tierd__Wire__PlanNeeds *needs, char message[MESSAGE_BYTES])
{
	struct setup setup = { .job = job, .made = MADE_INIT };
	int r = setup_plan(&setup);

	if (r == 0)
		set_needs(&setup, needs);
	snprintf(message, MESSAGE_BYTES, "%s", setup.message);
	setup_give_up(&setup);
	setup_clear(job, false);
	return r;
}

/* ---- Questions ---- */

static Tierd__Wire__PlanNeeds *new_needs(void)
{
	Tierd__Wire__PlanNeeds *needs = malloc(sizeof(*needs));

	if (needs)
		tierd__wire__plan_needs__init(needs);
	return needs;
}

static int set_status(Tierd__Wire__Status **place, int r, const char *message)
{
	Tierd__Wire__Status *status = malloc(sizeof(*status));

	if (!status)
		return -ENOMEM;
	tierd__wire__status__init(status);
	status->code = status_from_errno(r);
	status->message = strdup(message);
	*place = status;
	return status->message ? 0 : -ENOMEM;
}

/* Refused where there is no room at all, a job says what it lacks; and with just that it is accepted. */
static int ask_least(struct job *job, Tierd__Wire__PlanNeeds *needs, char message[MESSAGE_BYTES])
{
	int r;

	job->node->settings.host_budget = budget_host_used(job->node);
	r = try(job, needs, message);
	if (r != -ENOMEM || budget_shortage(job)->bytes == 0)
		return r;
	job->node->settings.host_budget = budget_host_used(job->node) + budget_shortage(job)->bytes;
	return try(job, needs, message);
}

/* What a job needs depends, by a little, on the node's staging buffers, and their number on the budget. */
static int ask_least_budget(struct job *job, Tierd__Wire__JobPlan *plan, char message[MESSAGE_BYTES])
{
	struct staging *staging = job->node->staging;
	unsigned count = node_staging_count(PLENTY), given = staging->count;
	int r;

	do {
		staging->count = count;
		r = ask_least(job, plan->least, message);
		if (r < 0)
			break;
		count = node_staging_beside(plan->least->host_bytes);
	} while (count < staging->count);
	plan->host_budget = plan->least->host_bytes + staging_bytes(staging->count);
	staging->count = given;
	return r;
}

/* On any node; but what a node is described as having counts. */
static int ask_needs(const Tierd__Wire__PlanRequest *request, struct job *job, Tierd__Wire__JobPlan *plan,
		     char message[MESSAGE_BYTES])
{
	struct budget_limits limits = *budget_limits(job);
	int r;

	plan->least = new_needs();
	plan->most = new_needs();
	if (!plan->least || !plan->most)
		return -ENOMEM;
	/* Its own budget is no need. */
	limits.host_budget = limits.nvme_budget = 0;
	budget_set_limits(job, &limits);
	r = ask_least_budget(job, plan, message);
	if (r == 0 && request->node)
		r = ask_least(job, plan->least, message);
	if (r < 0)
		return r;
	job->node->settings.host_budget = PLENTY;
	return try(job, plan->most, message);
}

/* On this one. */
static int ask_here(struct node *node, const Tierd__Wire__PlanRequest *request,
		    const Tierd__Wire__JobOpen *open, bool is_alone, Tierd__Wire__PlanNeeds *needs,
		    char message[MESSAGE_BYTES])
{
	struct job *job;
	int r;

	furnish_as(node, request->node, is_alone);
	r = make(node, request, open, quota_of(request->node->limits, is_alone), &job, message);
	if (r == 0) {
		r = try(job, needs, message);
		job_free(job);
	}
	unfurnish(node);
	return r;
}

static int judge(struct node *node, const Tierd__Wire__PlanRequest *request, const Tierd__Wire__JobOpen *open,
		 Tierd__Wire__JobPlan *plan)
{
	Tierd__Wire__PlanNeeds *needs = new_needs();
	char message[MESSAGE_BYTES] = "out of memory";
	int r;

	if (!needs)
		return -ENOMEM;
	r = ask_here(node, request, open, false, needs, message);
	if (r == 0) {
		plan->taken = needs;
		return 0;
	}
	r = set_status(&plan->here, r, message);
	plan->fits_alone = ask_here(node, request, open, true, needs, message) == 0;
	free(needs);
	return r;
}

static int plan_job(struct node *node, const Tierd__Wire__PlanRequest *request,
		    const Tierd__Wire__JobOpen *open, Tierd__Wire__JobPlan *plan)
{
	char message[MESSAGE_BYTES] = "out of memory";
	struct job *job;
	int r;

	furnish(node, request->node);
	r = make(node, request, open, (struct quota){ 0 }, &job, message);
	if (r == 0) {
		r = ask_needs(request, job, plan, message);
		job_free(job);
	}
	unfurnish(node);
	if (r < 0)
		return set_status(&plan->status, r, message);
	return request->node ? judge(node, request, open, plan) : 0;
}

static int plan_all(struct node *node, const Tierd__Wire__PlanRequest *request, Tierd__Wire__JobPlans *plans)
{
	int r = 0;

	plans->plans = calloc(request->n_jobs, sizeof(*plans->plans));
	if (!plans->plans)
		return -ENOMEM;
	for (size_t i = 0; i < request->n_jobs && r == 0; i++) {
		Tierd__Wire__JobPlan *plan = malloc(sizeof(*plan));

		if (!plan)
			return -ENOMEM;
		tierd__wire__job_plan__init(plan);
		plans->plans[plans->n_plans++] = plan;
		r = plan_job(node, request, request->jobs[i], plan);
	}
	return r;
}

int plan_answer(const Tierd__Wire__PlanRequest *request, Tierd__Wire__JobPlans **ret_plans)
{
	_cleanup_(place_clear) struct place place = { NULL, NULL };
	Tierd__Wire__JobPlans *plans = malloc(sizeof(*plans));
	int r;

	if (!plans)
		return -ENOMEM;
	tierd__wire__job_plans__init(plans);
	r = place_init(&place);
	if (r == 0)
		r = plan_all(place.node, request, plans);
	if (r < 0)
		tierd__wire__job_plans__free_unpacked(plans, NULL);
	else
		*ret_plans = plans;
	return r;
}

/* ---- Streams ---- */

static int read_all(FILE *input, uint8_t **ret_bytes, size_t *ret_length)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t length = 0, capacity = 0;

	while (!feof(input)) {
		uint8_t *grown = realloc(bytes, capacity = 2 * capacity + 65536);

		if (!grown)
			return -ENOMEM;
		bytes = grown;
		length += fread(bytes + length, 1, capacity - length, input);
		if (ferror(input))
			return -EIO;
	}
	*ret_bytes = TAKE_PTR(bytes);
	*ret_length = length;
	return 0;
}

static bool is_sensible(const Tierd__Wire__PlanRequest *request)
{
	return request->n_jobs > 0 && request->n_units > 0 &&
	       (!request->node || request->node->n_paths <= NODE_MAX_PATHS);
}

static int print(const Tierd__Wire__JobPlans *plans, FILE *output)
{
	size_t length = tierd__wire__job_plans__get_packed_size(plans);
	_cleanup_free_ uint8_t *bytes = malloc(length + 1);

	if (!bytes)
		return -ENOMEM;
	tierd__wire__job_plans__pack(plans, bytes);
	return fwrite(bytes, 1, length, output) == length && fflush(output) == 0 ? 0 : -errno;
}

static int serve(FILE *input, FILE *output)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	Tierd__Wire__PlanRequest *request;
	Tierd__Wire__JobPlans *plans = NULL;
	size_t length;
	int r = read_all(input, &bytes, &length);

	if (r < 0)
		return r;
	request = tierd__wire__plan_request__unpack(NULL, length, bytes);
	r = request && is_sensible(request) ? plan_answer(request, &plans) : -EPROTO;
	if (r == 0)
		r = print(plans, output);
	if (plans)
		tierd__wire__job_plans__free_unpacked(plans, NULL);
	if (request)
		tierd__wire__plan_request__free_unpacked(request, NULL);
	return r;
}

int plan_serve(FILE *input, FILE *output)
{
	int r = serve(input, output);

	if (r == -EPROTO)
		log_error("what came is no plan: tierctl plan asks for one, and is to be of this "
			  "version, " TIERD_VERSION);
	else if (r < 0)
		log_error("nothing can be planned: %s", strerror(-r));
	return r;
}
