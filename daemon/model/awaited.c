#include "daemon/model/awaited.h"

#include <assert.h>

#include "daemon/model/job.h"

void awaited_add(struct awaited *awaited, uint64_t step, uint32_t request)
{
	unsigned index = (awaited->first + awaited->count) % AWAITED_MOST;

	assert(awaited->count < AWAITED_MOST);
	awaited->steps[index].step = step;
	awaited->steps[index].request = request;
	awaited->count++;
}

bool awaited_has_room(const struct awaited *awaited)
{
	return awaited->count + 2 < AWAITED_MOST;
}

bool awaited_has(const struct awaited *awaited, uint32_t request)
{
	for (unsigned i = 0; i < awaited->count; i++)
		if (awaited->steps[(awaited->first + i) % AWAITED_MOST].request == request)
			return true;
	return false;
}

static uint32_t take_first(struct awaited *awaited)
{
	uint32_t request = awaited->steps[awaited->first].request;

	awaited->first = (awaited->first + 1) % AWAITED_MOST;
	awaited->count--;
	return request;
}

static void reply_durable(struct member *member, uint32_t request, uint64_t step)
{
	Tierd__Wire__StepDurable body = TIERD__WIRE__STEP_DURABLE__INIT;

	body.step = step;
	if (member->port)
		port_reply(member->port, request, WIRE_REPLY(STEP_DURABLE, step_durable, &body));
}

void awaited_answer(struct member *member, uint64_t step)
{
	struct awaited *awaited = &member->awaited;

	while (awaited->count > 0 && awaited->steps[awaited->first].step <= step) {
		uint64_t durable = awaited->steps[awaited->first].step;

		reply_durable(member, take_first(awaited), durable);
	}
	member_step_over(member);
}

void awaited_fail(struct member *member, int r, const char *reason)
{
	struct awaited *awaited = &member->awaited;

	while (awaited->count > 0) {
		uint32_t request = take_first(awaited);

		if (member->port)
			port_reply_error(member->port, request, r, "%s", reason);
	}
	member_step_over(member);
}
