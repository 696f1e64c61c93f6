#include "daemon/observe/wear.h"

#include <string.h>

#define LEAST_S 3600

/* Days that nothing was counted on. */
static void begin_day(struct wear *wear, uint64_t day)
{
	if (day <= wear->day)
		return;
	if (day - wear->day >= WEAR_DAYS)
		memset(wear->days, 0, sizeof(wear->days));
	else
		while (wear->day < day)
			wear->days[++wear->day % WEAR_DAYS] = 0;
	wear->day = day;
}

void wear_add(struct wear *wear, uint64_t bytes, uint64_t now_s)
{
	if (wear->began_s == 0)
		wear->began_s = now_s;
	begin_day(wear, now_s / WEAR_DAY_S);
	wear->days[wear->day % WEAR_DAYS] += bytes;
	wear->total += bytes;
}

uint64_t wear_today(const struct wear *wear, uint64_t now_s)
{
	return now_s / WEAR_DAY_S > wear->day ? 0 : wear->days[wear->day % WEAR_DAYS];
}

/* Of what the days hold that are not too long ago. */
static uint64_t recent_bytes(const struct wear *wear, uint64_t today)
{
	uint64_t bytes = 0;

	for (uint64_t back = 0; back < WEAR_DAYS && back <= wear->day; back++)
		if (wear->day - back + WEAR_DAYS > today)
			bytes += wear->days[(wear->day - back) % WEAR_DAYS];
	return bytes;
}

bool wear_rate(const struct wear *wear, uint64_t now_s, uint64_t *ret_bytes)
{
	uint64_t today = now_s / WEAR_DAY_S;
	uint64_t first_s = today >= WEAR_DAYS ? (today - (WEAR_DAYS - 1)) * WEAR_DAY_S : 0;

	first_s = wear->began_s > first_s ? wear->began_s : first_s;
	if (wear->began_s == 0 || now_s < first_s + LEAST_S)
		return false;
	*ret_bytes = (uint64_t)((double)recent_bytes(wear, today) / (double)(now_s - first_s) * WEAR_DAY_S);
	return true;
}

bool wear_days_left(const struct wear *wear, uint64_t endurance, uint64_t now_s, uint64_t *ret_days)
{
	uint64_t rate, left = endurance > wear->total ? endurance - wear->total : 0;

	if (endurance == 0)
		return false;
	if (left > 0 && (!wear_rate(wear, now_s, &rate) || rate == 0))
		return false;
	*ret_days = left > 0 ? left / rate : 0;
	return true;
}
