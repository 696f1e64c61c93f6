/* What we declare of NCCL is what its header has. Where there is a toolkit. */
#include <nccl.h>

#include "collectives/nccl/nccl.h"
#include "tests/unit/test.h"

/* Fails to compile where the numbers of arguments differ, what they point to, or the size of the result. An
 * enumeration of theirs is an int of ours. */
#define EXPECT_CALL(place, call, ...) EXPECT_CALLS((place)(__VA_ARGS__), call(__VA_ARGS__))
#define EXPECT_CALLS(ours, theirs) _Static_assert(sizeof(theirs) == sizeof(ours), #theirs)

static void the_calls_take_the_same(void **state)
{
	struct ncclComm *comm = NULL;
	ncclConfig_t their_config;
	struct nccl_config config;
	ncclUniqueId their_id;
	struct nccl_id id;
	ncclResult_t result;
	struct nccl nccl;
	void *memory = NULL;
	int number;

	EXPECT_CALL(nccl.version, ncclGetVersion, &number);
	EXPECT_CALL(nccl.error_string, ncclGetErrorString, ncclSystemError);
	EXPECT_CALL(nccl.last_error, ncclGetLastError, comm);
	EXPECT_CALLS(nccl.make_id(&id), ncclGetUniqueId(&their_id));
	EXPECT_CALLS(nccl.create(&comm, 2, id, 0, &config),
		     ncclCommInitRankConfig(&comm, 2, their_id, 0, &their_config));
	EXPECT_CALLS(nccl.state(comm, &number), ncclCommGetAsyncError(comm, &result));
	EXPECT_CALL(nccl.finalize, ncclCommFinalize, comm);
	EXPECT_CALL(nccl.destroy, ncclCommDestroy, comm);
	EXPECT_CALL(nccl.abort, ncclCommAbort, comm);
	EXPECT_CALL(nccl.enroll, ncclCommRegister, comm, memory, sizeof(number), &memory);
	EXPECT_CALL(nccl.withdraw, ncclCommDeregister, comm, memory);
	EXPECT_CALL(nccl.group_start, ncclGroupStart, );
	EXPECT_CALL(nccl.group_end, ncclGroupEnd, );
	EXPECT_CALL(nccl.all_gather, ncclAllGather, memory, memory, sizeof(number), ncclUint8, comm, memory);
	EXPECT_CALL(nccl.broadcast, ncclBroadcast, memory, memory, sizeof(number), ncclUint8, 0, comm,
		    memory);
	EXPECT_CALL(nccl.send, ncclSend, memory, sizeof(number), ncclUint8, 0, comm, memory);
	EXPECT_CALL(nccl.receive, ncclRecv, memory, sizeof(number), ncclUint8, 0, comm, memory);
}

/* One field of their configuration and ours. Newer ones have more behind ours. */
#define EXPECT_FIELD(theirs, ours)                                                                           \
	do {                                                                                                 \
		assert_int_equal(offsetof(ncclConfig_t, theirs), offsetof(struct nccl_config, ours));        \
		assert_int_equal(sizeof(((ncclConfig_t *)0)->theirs),                                        \
				 sizeof(((struct nccl_config *)0)->ours));                                   \
	} while (0)

static void the_structs_are_the_same(void **state)
{
	const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

	EXPECT_FIELD(size, size);
	EXPECT_FIELD(magic, magic);
	EXPECT_FIELD(version, version);
	EXPECT_FIELD(blocking, is_blocking);
	EXPECT_FIELD(cgaClusterSize, cluster_size);
	EXPECT_FIELD(minCTAs, least_blocks);
	EXPECT_FIELD(maxCTAs, most_blocks);
	EXPECT_FIELD(netName, network);
	EXPECT_FIELD(splitShare, is_shared_by_split);
	assert_int_equal(config.magic, NCCL_CONFIG_MAGIC);
	assert_int_equal(NCCL_VERSION(2, 19, 0), NCCL_CONFIG_VERSION);
	assert_int_equal(sizeof(ncclUniqueId), sizeof(struct nccl_id));
}

static void the_numbers_are_the_same(void **state)
{
	assert_int_equal(NCCL_DONE, ncclSuccess);
	assert_int_equal(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
	assert_int_equal(NCCL_SYSTEM_ERROR, ncclSystemError);
	assert_int_equal(NCCL_INTERNAL_ERROR, ncclInternalError);
	assert_int_equal(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
	assert_int_equal(NCCL_INVALID_USAGE, ncclInvalidUsage);
	assert_int_equal(NCCL_REMOTE_ERROR, ncclRemoteError);
	assert_int_equal(NCCL_IN_PROGRESS, ncclInProgress);
	assert_int_equal(NCCL_BYTE, ncclUint8);
	assert_int_equal(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_take_the_same),
		cmocka_unit_test(the_structs_are_the_same),
		cmocka_unit_test(the_numbers_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
