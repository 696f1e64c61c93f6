/* Which units take what the optimizer keeps: those of which every tensor that is trained has a source. */
#include <errno.h>

#include "daemon/request/request.h"
#include "daemon/values/source.h"

static int check_optimizer(const struct source *source, char *message, size_t size)
{
	const struct job_options *here = &source->job->options, *there = &source->from->options;

	if (!source->may_read_all)
		return refuse(message, size, -EPERM,
			      "job %s is shared for reading: its parameters can be taken, what its optimizer "
			      "keeps cannot",
			      source->name);
	if (here->optimizer != there->optimizer || here->slot_count != there->slot_count)
		return refuse(message, size, -EINVAL,
			      "optimizer is %s with %u slots here, %s with %u in job %s; without "
			      "with_optimizer it begins anew",
			      here->optimizer->name, here->slot_count, there->optimizer->name,
			      there->slot_count, source->name);
	return 0;
}

/* How often what it takes was updated there: its parts have to have had as many updates. */
static int match_tensor(const struct source *source, const struct tensor *tensor, uint64_t *ret_updates,
			char *message, size_t size)
{
	uint64_t updates = 0;

	for (uint64_t element = 0, at; element < tensor->layout.elements;) {
		const struct source_entry *entry = source_map_find(&source->map, tensor, element, &at);
		const struct unit *there = &source->from->catalog.units[entry->unit];
		uint64_t there_updates = source_updates(source, entry->unit, entry->tensor);

		if (there->tensors[entry->tensor].is_frozen)
			return refuse(
				message, size, -EINVAL,
				"tensor \"%s\" is trained here, and frozen in job %s: its optimizer keeps "
				"nothing of it",
				tensor->name, source->name);
		if (element > 0 && there_updates != updates)
			return refuse(
				message, size, -EINVAL,
				"tensor \"%s\" takes parts that have had %llu updates in job %s, and others "
				"that have had %llu: it can only have one number of them",
				tensor->name, (unsigned long long)updates, source->name,
				(unsigned long long)there_updates);
		updates = there_updates;
		element += entry->end - entry->first - at;
	}
	*ret_updates = updates;
	return 0;
}

/* The unit has had as many as that of its tensors that has had most. Of each, missed is its own number so
 * far. */
static void set_updates(struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (unit->tensors[i].missed > unit->updates)
			unit->updates = unit->tensors[i].missed;
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (!unit->tensors[i].is_frozen)
			unit->tensors[i].missed = unit->updates - unit->tensors[i].missed;
}

/* A unit of which some tensor is initialized begins anew. */
static int match_unit(struct source *source, struct unit *unit, char *message, size_t size)
{
	unit->has_source = true;
	for (uint32_t i = 0; i < unit->tensor_count && unit->has_source; i++)
		unit->has_source = unit->tensors[i].has_source || unit->tensors[i].is_frozen;
	for (uint32_t i = 0; i < unit->tensor_count && unit->has_source; i++) {
		struct tensor *tensor = &unit->tensors[i];
		int r = tensor->is_frozen ? 0 : match_tensor(source, tensor, &tensor->missed, message, size);

		if (r < 0)
			return r;
	}
	if (unit->has_source)
		set_updates(unit);
	return 0;
}

int source_match_slots(struct source *source, char *message, size_t size)
{
	const struct catalog *catalog = &source->job->catalog;
	int r = check_optimizer(source, message, size);

	for (uint32_t u = 0; u < catalog->unit_count && r == 0; u++)
		r = match_unit(source, &catalog->units[u], message, size);
	return r;
}
