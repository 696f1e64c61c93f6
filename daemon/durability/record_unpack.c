#include "daemon/durability/record_unpack.h"
#include "daemon/durability/own.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "common/size.h"
#include "daemon/request/request.h"

/* Unpacked, a message is larger than its bytes: by pointers, and by what the allocator adds. Of what
 * record_encode_definition() writes it is less than this; of bytes that say "nothing" a million times it
 * could be much more. */
#define UNPACKED_TIMES 16
#define UNPACKED_LEAST (64 * KIB)

/* ---- Unpacking ---- */

/* What a message may take while it is unpacked: never given back, but with the message. */
struct allowance {
	ProtobufCAllocator allocator;
	uint64_t left;
	bool is_out_of_memory; /* not the message's fault */
};

static void *allowance_take(void *data, size_t size)
{
	struct allowance *allowance = data;

	void *memory;

	if (size > allowance->left)
		return NULL;
	allowance->left -= size;
	memory = malloc(size ? size : 1);
	allowance->is_out_of_memory |= !memory;
	return memory;
}

static void allowance_give(void *data, void *memory)
{
	free(memory);
}

static struct allowance allowance_for(uint64_t size)
{
	return (struct allowance){ .allocator = { allowance_take, allowance_give, NULL },
				   .left = size_sum(UNPACKED_LEAST, size_product(size, UNPACKED_TIMES)) };
}

/* It is the first field of each, and read before the rest is taken for something that it is not. */
static int check_format(const char *what, struct record_message part, char *message, size_t size)
{
	const uint8_t *bytes = part.bytes;
	uint64_t format = 0;
	unsigned shift = 0, i = 1;

	if (part.size < 2 || bytes[0] != 1 << 3)
		return refuse(message, size, -EBADMSG, "its %s does not begin with a format", what);
	for (; i < part.size && bytes[i] >= 0x80 && shift < 28; i++, shift += 7)
		format |= (uint64_t)(bytes[i] & 0x7f) << shift;
	if (i == part.size || bytes[i] >= 0x80)
		return refuse(message, size, -EBADMSG, "its %s does not begin with a format", what);
	format |= (uint64_t)bytes[i] << shift;
	if (format >= RECORD_FORMAT_UNITS && format <= RECORD_FORMAT)
		return 0;
	return refuse(message, size, -EPROTONOSUPPORT,
		      "its %s is of format %llu, and this tierd knows formats %d to %d: start the tierd that "
		      "stored it",
		      what, (unsigned long long)format, RECORD_FORMAT_UNITS, RECORD_FORMAT);
}

int record_unpack(const char *what, const ProtobufCMessageDescriptor *descriptor, struct record_message part,
		  ProtobufCMessage **ret_message, char *message, size_t size)
{
	struct allowance allowance = allowance_for(part.size);
	int r = check_format(what, part, message, size);

	if (r < 0)
		return r;
	allowance.allocator.allocator_data = &allowance;
	*ret_message = protobuf_c_message_unpack(descriptor, &allowance.allocator, part.size, part.bytes);
	if (*ret_message)
		return 0;
	return allowance.is_out_of_memory ? refuse(message, size, -ENOMEM, "out of memory")
					  : refuse(message, size, -EBADMSG, "its %s cannot be read", what);
}

void record_free_message(ProtobufCMessage **place)
{
	protobuf_c_message_free_unpacked(*place, NULL);
}

/* ---- Progress ---- */

int record_check_job(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
		     size_t size)
{
	uint32_t units = job->catalog.unit_count;
	uint64_t tensors = job->catalog.tensor_count;
	uint64_t counted = job->location.record_format >= RECORD_FORMAT_TENSORS ? tensors : 0;
	uint64_t grouped = job->location.record_format >= RECORD_FORMAT_GROUPS ? tensors : 0;

	if (progress->format != job->location.record_format)
		return refuse(message, size, -EBADMSG, "its progress is not of its definition's format");
	if (progress->n_updates != units || progress->n_last_updates != units ||
	    progress->n_groups != job->options.group_count)
		return refuse(message, size, -EBADMSG,
			      "its progress is of another job: %zu unit%s and %zu parameter group%s, not %u "
			      "and %u",
			      progress->n_updates, PLURAL(progress->n_updates), progress->n_groups,
			      PLURAL(progress->n_groups), units, job->options.group_count);
	if (progress->n_missed > 0 && progress->n_missed != counted)
		return refuse(message, size, -EBADMSG, "its progress counts the updates of %zu tensor%s",
			      progress->n_missed, PLURAL(progress->n_missed));
	if (progress->n_tensor_groups > 0 && progress->n_tensor_groups != grouped)
		return refuse(message, size, -EBADMSG, "its progress has the groups of %zu tensor%s",
			      progress->n_tensor_groups, PLURAL(progress->n_tensor_groups));
	return 0;
}

static int check_updates(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			 size_t size)
{
	for (uint32_t i = 0; i < job->catalog.unit_count; i++) {
		const struct unit *unit = &job->catalog.units[i];
		uint64_t updates = progress->updates[i], last = progress->last_updates[i];

		/* Of different steps, of which that one was the last. */
		if ((updates > last && !job->durability->has_earlier_updates) || last > progress->step ||
		    (updates == 0 && last > 0) || (updates > 0 && !unit_is_trainable(unit)))
			return refuse(message, size, -EBADMSG,
				      "unit \"%s\" cannot have had %llu update%s, the last in step %llu, at "
				      "step %llu",
				      unit->name, (unsigned long long)updates, PLURAL(updates),
				      (unsigned long long)last, (unsigned long long)progress->step);
	}
	return 0;
}

uint64_t record_missed(const Tierd__Record__JobProgress *progress, const struct unit *unit, uint32_t tensor)
{
	return progress->n_missed > 0 ? progress->missed[unit->first_tensor + tensor] : 0;
}

static int check_missed(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			size_t size)
{
	for (uint32_t u = 0; u < job->catalog.unit_count; u++) {
		const struct unit *unit = &job->catalog.units[u];

		for (uint32_t i = 0; i < unit->tensor_count; i++) {
			uint64_t missed = record_missed(progress, unit, i);

			if (missed > (unit->tensors[i].is_frozen ? 0 : progress->updates[u]))
				return refuse(
					message, size, -EBADMSG,
					"tensor \"%s\" cannot have missed %llu of the %llu update%s of its "
					"unit",
					unit->tensors[i].name, (unsigned long long)missed,
					(unsigned long long)progress->updates[u],
					PLURAL(progress->updates[u]));
		}
	}
	return 0;
}

int record_check_updates(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			 size_t size)
{
	int r = check_updates(job, progress, message, size);

	return r < 0 ? r : check_missed(job, progress, message, size);
}

int record_decode_updates(const struct job *job, struct record_message part, uint64_t *ret_updates,
			  char *message, size_t size)
{
	_cleanup_(record_free_message) ProtobufCMessage *reached = NULL;
	const Tierd__Record__JobProgress *progress;
	int r = record_unpack("progress", &tierd__record__job_progress__descriptor, part, &reached, message,
			      size);

	if (r < 0)
		return r;
	progress = (const Tierd__Record__JobProgress *)reached;
	r = record_check_job(job, progress, message, size);
	if (r == 0)
		r = record_check_updates(job, progress, message, size);
	for (uint32_t u = 0; u < job->catalog.unit_count && r == 0; u++) {
		const struct unit *unit = &job->catalog.units[u];

		for (uint32_t i = 0; i < unit->tensor_count; i++)
			ret_updates[unit->first_tensor + i] =
				progress->updates[u] - record_missed(progress, unit, i);
	}
	return r;
}

void record_take_definition(struct job *job, const Tierd__Record__JobDefinition *definition)
{
	job->durability->has_earlier_updates = definition->has_earlier_updates;
	job->durability->is_retention_set = definition->is_retention_set;
}
