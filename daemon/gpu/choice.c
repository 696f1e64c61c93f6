#include "daemon/gpu/choice.h"

static bool is_measured(const struct gpu_choice *choice, enum gpu_way way)
{
	return choice->ways[way].seen == GPU_CHOICE_TRIES;
}

static bool is_known(const struct gpu_choice *choice)
{
	return choice->is_given ||
	       (is_measured(choice, GPU_WAY_PLAIN) && is_measured(choice, GPU_WAY_TOGETHER));
}

bool gpu_choice_is_plain(const struct gpu_choice *choice)
{
	return !choice->is_given && is_known(choice) &&
	       choice->ways[GPU_WAY_PLAIN].best <= choice->ways[GPU_WAY_TOGETHER].best;
}

/* In turn, as long as one has tries left: those that broke off are not seen. */
enum gpu_way gpu_choice_way(const struct gpu_choice *choice, uint64_t number)
{
	if (is_known(choice))
		return gpu_choice_is_plain(choice) ? GPU_WAY_PLAIN : GPU_WAY_TOGETHER;
	return number % 2 == 0 ? GPU_WAY_TOGETHER : GPU_WAY_PLAIN;
}

enum gpu_way gpu_choice_next(struct gpu_choice *choice)
{
	return gpu_choice_way(choice, choice->next++);
}

/* As many of each way: of more the best would be better. */
void gpu_choice_note(struct gpu_choice *choice, enum gpu_way way, uint64_t bytes, uint64_t ns)
{
	double each = (double)ns / (double)bytes;

	if (choice->is_given || is_measured(choice, way))
		return;
	if (choice->ways[way].seen++ == 0 || each < choice->ways[way].best)
		choice->ways[way].best = each;
}
