#include "daemon/update/groups.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "daemon/request/request.h"
#include "proto/name.h"

/* Room for the names of a unit and a tensor in a message of 832 bytes. */
#define NAME_TEXT 300

static uint16_t *group_at(const struct member *member, const struct unit *unit, uint32_t tensor)
{
	return &member->groups[unit->first_tensor + tensor];
}

static uint32_t group_of(const struct member *member, const struct unit *unit, uint32_t tensor)
{
	return member->has_moved ? *group_at(member, unit, tensor) : unit->tensors[tensor].group;
}

/* ---- Moving them ---- */

/* What the optimizer keeps of a tensor stays where it is. */
static int check_tensor(const struct job *job, const struct tensor *tensor, uint32_t group, char *message,
			size_t size)
{
	const struct optimizer_group *groups = job->options.groups;

	if (group >= job->options.group_count)
		return refuse(
			message, size, -EINVAL, "tensor \"%.*s\" is in parameter group %u; the job has %u",
			name_fit(tensor->name, NAME_TEXT), tensor->name, group, job->options.group_count);
	if (!tensor->is_frozen && groups[group].moments != groups[tensor->defined_group].moments)
		return refuse(
			message, size, -EINVAL,
			"tensor \"%.*s\" cannot be in parameter group %u, which keeps moments in another "
			"format than group %u, with which it was defined",
			name_fit(tensor->name, NAME_TEXT), tensor->name, group, tensor->defined_group);
	return 0;
}

int groups_check(const struct job *job, const struct unit *unit, const uint32_t *groups, char *message,
		 size_t size)
{
	int r = 0;

	for (uint32_t i = 0; i < unit->tensor_count && r == 0; i++)
		r = check_tensor(job, &unit->tensors[i], groups[i], message, size);
	return r;
}

/* Of a step that is closed or announced they are what they are. */
static int check_time(const struct member *member, char *message, size_t size)
{
	if (member->is_closed || member->next_step)
		return refuse(message, size, -EBUSY,
			      "rank %u has a step on its way: wait for it before tensors are moved to other "
			      "groups",
			      member->rank);
	if (member->announced.is_made)
		return refuse(message, size, -EBUSY,
			      "rank %u has announced its step: tensors are moved to other groups before "
			      "tierd_step_begin",
			      member->rank);
	return 0;
}

static int check_set(const struct member *member, const Tierd__Wire__GroupsSet *set, char *message,
		     size_t size)
{
	const struct job *job = member->job;
	const struct unit *unit;
	int r;

	if (set->unit >= job->catalog.unit_count)
		return refuse(message, size, -EINVAL, "there is no unit %u", set->unit);
	unit = &job->catalog.units[set->unit];
	if (set->n_groups != unit->tensor_count)
		return refuse(message, size, -EINVAL, "unit \"%.*s\" has %u tensor%s, and %zu group%s given",
			      name_fit(unit->name, NAME_TEXT), unit->name, unit->tensor_count,
			      PLURAL(unit->tensor_count), set->n_groups,
			      set->n_groups == 1 ? " is" : "s are");
	if (job->location.record_format < RECORD_FORMAT_GROUPS)
		return refuse(
			message, size, -EOPNOTSUPP,
			"the store of job %s was made by an older tierd, and has no place for the "
			"groups of tensors, which stay as they were defined: begin a job with its state "
			"(\"from\", with_optimizer)",
			job->name);
	r = check_time(member, message, size);
	return r < 0 ? r : groups_check(job, unit, set->groups, message, size);
}

/* Those of the job. */
static void begin_moving(struct member *member)
{
	const struct catalog *catalog = &member->job->catalog;

	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++)
			*group_at(member, &catalog->units[u], i) = catalog->units[u].tensors[i].group;
	member->has_moved = true;
}

void groups_set(struct pending *pending, const Tierd__Wire__GroupsSet *set)
{
	struct member *member = pending->member;
	const struct unit *unit;
	char message[832];
	int r;

	if (!job_check_live(pending, set->epoch))
		return;
	r = check_set(member, set, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (!member->has_moved)
		begin_moving(member);
	unit = &member->job->catalog.units[set->unit];
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		*group_at(member, unit, i) = (uint16_t)set->groups[i];
	pending_reply(pending, NULL);
}

void groups_get(struct pending *pending, const Tierd__Wire__GroupsGet *get)
{
	const struct catalog *catalog = &pending->member->job->catalog;
	Tierd__Wire__GroupsReply body = TIERD__WIRE__GROUPS_REPLY__INIT;
	_cleanup_free_ uint32_t *groups = NULL;
	const struct unit *unit;

	if (get->unit >= catalog->unit_count) {
		pending_error(pending, -EINVAL, "there is no unit %u", get->unit);
		return;
	}
	unit = &catalog->units[get->unit];
	groups = calloc(unit->tensor_count, sizeof(*groups));
	if (!groups) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		groups[i] = group_of(pending->member, unit, i);
	body.n_groups = unit->tensor_count;
	body.groups = groups;
	pending_reply(pending, WIRE_REPLY(GROUPS, groups, &body));
}

/* ---- The step ---- */

static const struct member *find_closed(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && job->members.ranks[rank]->is_closed)
			return job->members.ranks[rank];
	return NULL;
}

static int compare_unit(const struct member *member, const struct member *other, const struct unit *unit,
			char *message, size_t size)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		uint32_t here = group_of(member, unit, i), there = group_of(other, unit, i);
		const char *name = unit->tensors[i].name;

		if (here != there)
			return refuse(message, size, -EINVAL,
				      "unit \"%.*s\", tensor \"%.*s\": parameter group %u here, %u at the "
				      "ranks that have closed this step",
				      name_fit(unit->name, NAME_TEXT), unit->name, name_fit(name, NAME_TEXT),
				      name, here, there);
	}
	return 0;
}

int groups_compare(const struct member *member, char *message, size_t size)
{
	const struct catalog *catalog = &member->job->catalog;
	const struct member *other = find_closed(member->job);
	int r = 0;

	if (!other || (!member->has_moved && !other->has_moved))
		return 0;
	for (uint32_t u = 0; u < catalog->unit_count && r == 0; u++)
		r = compare_unit(member, other, &catalog->units[u], message, size);
	return r;
}

static void take(struct catalog *catalog, const struct member *member)
{
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++)
			catalog->units[u].tensors[i].group = *group_at(member, &catalog->units[u], i);
}

void groups_decide(struct job *job)
{
	const struct member *member = find_closed(job);

	if (member && member->has_moved)
		take(&job->catalog, member);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			job->members.ranks[rank]->has_moved = false;
}
