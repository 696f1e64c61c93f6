// tierd.h is C++17 too: this file only has to compile, link and start.
#include "client/tierd.h"

#include <cstdio>
#include <cstring>

int main()
{
	tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	tierd_group group = TIERD_GROUP_INIT;
	tierd_tensor tensor = TIERD_TENSOR_INIT;
	tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	tierd_node *node = nullptr;

	if (options.stage != 3 || group.learning_rate != 1.0f || tensor.format != TIERD_BF16 ||
	    rates.loss_scale != 0.0f || statistics.size != sizeof(statistics))
		return 1;
	if (tierd_connect("/nonexistent/tierd.sock", &node) == 0 || std::strlen(tierd_message()) == 0)
		return 1;
	std::printf("libtierd %s\n", tierd_version());
	return tierd_disconnect(node) == nullptr ? 0 : 1;
}
