/* What stand-ins for libraries are told, by the environment or by a test in the same process, so that one
 * test can play any machine. */
#ifndef TIERD_TESTS_LIB_GPU_SCRIPT_H
#define TIERD_TESTS_LIB_GPU_SCRIPT_H

#include <stdbool.h>

/* Of a call of the library; what it is made of stays inside. */
#define API __attribute__((visibility("default")))

/* In place of that variable of the environment, which cannot change while threads read it; NULL: it is what
 * the environment says again. From any thread. */
API void standin_tell(const char *name, const char *value);

/* That of a process to be started, with what has been told; until this is asked, or something told, again. */
API char **standin_environment(void);

/* $STANDIN_FAILURES: "cuInit=999,cuDeviceGet=101": the error of that call; 0: it succeeds. "cuMemMap#3=2":
 * only of the third such call since that was told. A "!" behind it, "cuMemcpyAsync#2=719!": what it is a call
 * of is broken from then on. */
struct script_failure {
	int error;
	bool is_lasting;
};
API struct script_failure script_failure(const char *call);
API int script_error(const char *call);

/* $STANDIN_BLOCKS: "nvmlShutdown,cuMemHostUnregister=/path": those calls do not return while there is such a
 * file, which is not empty then. */

/* $NAME as a number, or else that. */
API long script_number(const char *name, long otherwise);

#endif
