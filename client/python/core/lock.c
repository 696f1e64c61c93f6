/* The interpreter's lock, for who may be called with it or without. */
#include <dlfcn.h>
#include <string.h>

#include "core/core.h"

/* The state of the thread that has the lock. The stable ABI has no call for that, and each version has one.
 */
static PyThreadState *(*holder)(void);

void core_find_lock(void)
{
	void *call = dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked");

	if (!call) /* before 3.13 */
		call = dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
	memcpy(&holder, &call, sizeof(call));
}

PyThreadState *core_give_up(void)
{
	PyThreadState *own = PyGILState_GetThisThreadState();

	return own && holder && holder() == own ? PyEval_SaveThread() : NULL;
}

void core_take_back(PyThreadState *state)
{
	if (state)
		PyEval_RestoreThread(state);
}
