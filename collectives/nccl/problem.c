/* What a communicator says when something is refused, or has failed. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "collectives/nccl/own.h"
#include "common/plural.h"

static void write_problem(struct communicator *communicator, const char *operation, const char *format,
			  va_list arguments)
{
	size_t size = sizeof(communicator->problem);
	size_t length = (size_t)snprintf(communicator->problem, size,
					 "job %s, epoch %" PRIu64 "%s: ", communicator->job,
					 communicator->epoch, operation);

	if (length < size)
		vsnprintf(communicator->problem + length, size - length, format, arguments);
}

int communicator_refuse(struct communicator *communicator, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_problem(communicator, "", format, arguments);
	va_end(arguments);
	return status;
}

int communicator_refuse_operation(struct communicator *communicator,
				  const struct communicator_operation *operation, int status,
				  const char *format, ...)
{
	char name[256];
	va_list arguments;

	snprintf(name, sizeof(name), ", %s number %" PRIu64 " (%s)", communicator_kind_name(operation->kind),
		 operation->sequence, operation->name);
	va_start(arguments, format);
	write_problem(communicator, name, format, arguments);
	va_end(arguments);
	return status;
}

void communicator_write_member(const struct communicator *communicator, const struct member *member,
			       char *text, size_t size)
{
	size_t length =
		(size_t)snprintf(text, size, "GPU %d (rank%s", member->gpu, PLURAL(member->rank_count));
	const char *between = "";

	for (unsigned rank = 0; rank < communicator->rank_count && length < size; rank++)
		if (communicator->member_of_rank[rank] == member->number) {
			length += (size_t)snprintf(text + length, size - length, "%s %u", between, rank);
			between = ",";
		}
	if (length < size)
		snprintf(text + length, size - length, ")");
}

const char *communicator_kind_name(enum communicator_kind kind)
{
	static const char *const names[COMMUNICATOR_KINDS] = {
		[COMMUNICATOR_ALL_GATHER] = "all-gather",
		[COMMUNICATOR_BROADCAST] = "broadcast",
		[COMMUNICATOR_REDUCE_SCATTER] = "reduce-scatter",
		[COMMUNICATOR_ALL_REDUCE] = "all-reduce",
	};

	return names[kind];
}
