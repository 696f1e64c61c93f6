#include "daemon/gpu/choice.h"

bool gpu_choice_is_plain(const struct gpu_choice *choice)
{
	for (unsigned way = 0; way < GPU_WAYS; way++)
		if (choice->is_given || choice->ways[way].seen < GPU_CHOICE_TRIES)
			return false;
	return choice->ways[GPU_WAY_PLAIN].best <= choice->ways[GPU_WAY_SHARED].best;
}

/* In turn, as long as one has tries left: those that broke off are not seen. */
enum gpu_way gpu_choice_next(struct gpu_choice *choice)
{
	enum gpu_way way = GPU_WAY_SHARED;

	if (choice->is_given)
		return GPU_WAY_SHARED;
	if (gpu_choice_is_plain(choice) ||
	    (choice->ways[GPU_WAY_PLAIN].seen < GPU_CHOICE_TRIES &&
	     choice->ways[GPU_WAY_PLAIN].begun < choice->ways[GPU_WAY_SHARED].begun))
		way = GPU_WAY_PLAIN;
	choice->ways[way].begun++;
	return way;
}

void gpu_choice_note(struct gpu_choice *choice, enum gpu_way way, uint64_t bytes, uint64_t ns)
{
	double each = (double)ns / (double)bytes;

	if (choice->ways[way].seen++ == 0 || each < choice->ways[way].best)
		choice->ways[way].best = each;
}
